/** One queue. */
import { html, useEffect } from '../lib.js';
import { part } from '../api.js';
import { useResource } from '../resource.js';
import { href, param, setParams } from '../router.js';
import { queueActions } from '../doing.js';
import { can } from '../session.js';
import { capped, count, duration, percent, plural, rate } from '../format.js';
import { Button, EmptyState, ErrorState, Loaded, Panel, Segments, Skeleton } from '../components/basics.js';
import { Done, Took } from '../components/History.js';
import { Menu } from '../components/Menu.js';
import { Facts, Stat } from '../components/Sign.js';
import { Text } from '../components/Text.js';
import { Time } from '../components/Time.js';
import { RANGES } from './overview.js';
import { Paused, limitWords } from './queues.js';
import { TaskRows } from './tasks.js';

export default function QueuePage({ name }) {
  const range = param('range', '1h');
  const queues = useResource('/queues', { every: 5, follow: ({ data }) => data.queue === name, gap: 2500 });
  const series = useResource(`/series?window=${range}&queue=${part(name)}`, { every: 15 });
  const tasks = useResource(`/tasks?window=${range}`, { every: 15 });
  const workers = useResource('/workers', { every: 15 });
  useEffect(() => { document.title = `${name} · Holdfast`; }, [name]);
  const queue = queues.data && queues.data.queues.find((one) => one.name === name);
  if (!queue) {
    if (queues.error) return html`<h1 class="sr">Queue</h1><${ErrorState} error=${queues.error} retry=${queues.reload} />`;
    if (!queues.data) return html`<h1 class="sr">Queue</h1><${Panel}><${Skeleton} lines=${8} /><//>`;
    return html`<h1 class="sr">Queue</h1><${EmptyState} icon="search" title="There is no such queue"><p>Nothing waits in it, nobody serves it, and nothing was done in it lately.</p><a href=${href('/queues')}>All queues</a><//>`;
  }
  return html`<${Head} queue=${queue} range=${range} /><div class="overview">
    <${Strip} queue=${queue} />
    <div class="stack"><${Panel} title="Done" note="by the minute"><${Loaded} from=${series} lines=${8}>${(data) => html`<${Done} series=${data.series} range=${range} sync="queue" />`}<//><//>
      <${Panel} title="Tasks" note=${`in the last ${range}`} flush><${Loaded} from=${tasks}>${(data) => html`<${TaskRows} rows=${data.tasks.filter((task) => task.queue === name)} brief
        empty=${html`<${EmptyState} icon="tasks" title="No task has it as its own queue" />`} />`}<//><//></div>
    <div class="stack">${queue.figures && html`<${Panel} title="Wait and run" note="in the last hour"><${Took} series=${queue.series} figures=${queue.figures} sync="queue" /><//>`}
      <${Panel} title="Facts"><${Facts} rows=${[
        ['Limit', limitWords(queue) || 'none'],
        queue.paused_at && ['Paused', html`<${Time} at=${queue.paused_at} />`],
        queue.paused_at && ['Goes on', queue.resume_at ? html`<${Time} at=${queue.resume_at} />` : 'when somebody resumes it'],
        ...(workers.data ? workers.data.workers : []).filter((one) => one.state === 'live' && (!one.queues.length || one.queues.includes(name))).slice(0, 8)
          .map((one) => ['Worker', html`<a href=${href('/workers')}><${Text} value=${one.id} /></a>`]),
      ]} /><//></div></div>`;
}

function Head({ queue, range }) {
  const actions = queueActions(queue);
  const resume = actions.find((one) => one.name === 'resume');
  return html`<header class="page-head"><div class="page-title"><div class="job-head"><h1><${Text} value=${queue.name} /></h1><${Paused} queue=${queue} /></div><p class="faint">queue</p></div>
    <div class="page-actions"><${Segments} label="Range" value=${range} options=${RANGES} onChange=${(value) => setParams({ range: value === '1h' ? '' : value })} />
      ${resume && html`<${Button} icon="play" kind="primary" onClick=${resume.run}>Resume<//>`}
      ${actions.length > 0 && html`<${Menu} label="More actions" text="Actions" items=${actions.filter((one) => one !== resume)} />`}</div></header>`;
}

function Strip({ queue }) {
  const jobs = (status) => (can('jobs.read') ? href(`/jobs?status=${status}&q=${encodeURIComponent(`queue:${queue.name}`)}`) : undefined);
  const figures = queue.figures || { failed: 0, failure_rate: 0, finished: 0 };
  return html`<section class="strip" aria-label="Now">
    <${Stat} label="Waiting" value=${capped(queue.pending, queue.cap)} note=${queue.oldest === null ? 'nothing waits' : `oldest ${duration(queue.oldest)}`} tone=${queue.oldest > 300 ? 'warn' : ''} to=${jobs('pending')} />
    <${Stat} label="Running" value=${count(queue.running)} note="now" to=${jobs('running')} />
    <${Stat} label="Done" value=${rate(queue.per_minute)} note="lately" />
    <${Stat} label="Drained in" value=${queue.pending ? duration(queue.drain) : '–'} note=${!queue.pending ? 'nothing waits' : queue.drain === null ? 'nobody knows yet' : 'at this rate'} />
    <${Stat} label="Failed, 1h" value=${count(figures.failed)} note=${`${percent(figures.failure_rate)} of ${count(figures.finished)}`} tone=${figures.failed ? 'bad' : ''} to=${jobs('failed')} />
    <${Stat} label="Workers" value=${count(queue.workers)} note=${queue.workers ? plural(queue.workers, 'serves it', 'serve it') : 'nobody serves it'} tone=${!queue.workers && queue.pending ? 'bad' : ''} to=${href('/workers')} />
  </section>`;
}
