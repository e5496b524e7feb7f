/** One task: how it fares, what it takes, and a way to run it. */
import { html, useEffect } from '../lib.js';
import { part } from '../api.js';
import { useResource } from '../resource.js';
import { href, param, setParams } from '../router.js';
import { can } from '../session.js';
import { limitTask, resetLimit } from '../doing.js';
import { count, duration, percent, plural, rate } from '../format.js';
import { Button, EmptyState, ErrorState, Panel, Segments, Skeleton } from '../components/basics.js';
import { Done, Took } from '../components/History.js';
import { Menu } from '../components/Menu.js';
import { openNewJob } from '../components/NewJob.js';
import { fieldsOf } from '../components/SchemaForm.js';
import { Facts, Stat } from '../components/Sign.js';
import { Histogram } from '../components/Sparkline.js';
import { Text } from '../components/Text.js';
import { RANGES } from './overview.js';
import { limitWords } from './queues.js';

export default function TaskPage({ name }) {
  const range = param('range', '1h');
  const task = useResource(`/tasks/${part(name)}?window=${range}`, { every: 5, follow: ({ data }) => data.type === name, gap: 2500 });
  const limits = useResource('/limits', { every: 15 });
  useEffect(() => { document.title = `${name} · Holdfast`; }, [name]);
  if (!task.data) {
    if (task.error && task.error.status === 404) return html`<h1 class="sr">Task</h1><${EmptyState} icon="search" title="There is no such task"><p><${Text} value=${task.error.detail} /></p><a href=${href('/tasks')}>All tasks</a><//>`;
    return html`<h1 class="sr">Task</h1>${task.error ? html`<${ErrorState} error=${task.error} retry=${task.reload} />` : html`<${Panel}><${Skeleton} lines=${8} /><//>`}`;
  }
  const { data } = task;
  const mine = (limits.data ? limits.data.limits : []).filter((one) => one.tasks.includes(name));
  return html`<${Head} task=${data} range=${range} />
    ${task.error && html`<${ErrorState} error=${task.error} retry=${task.reload} compact />`}
    <div class="overview"><${Strip} task=${data} range=${range} />
      <div class="stack"><${Panel} title="Done" note="by the minute"><${Done} series=${data.series} range=${range} sync="task" /><//>
        <div class="grid-2 spread"><${Panel} title="Wait" note="before a run"><${Histogram} buckets=${data.histograms.wait} label="Waits" /><//>
          <${Panel} title="Run" note="how long runs take"><${Histogram} buckets=${data.histograms.run} label="Runs" /><//></div>
        ${data.doc && html`<${Panel} title="About"><p class="doc"><${Text} value=${data.doc} /></p><//>`}
        <${Arguments} task=${data} /></div>
      <div class="stack"><${Panel} title="Wait and run" note=${`in the last ${range}`}><${Took} series=${data.series} figures=${data.figures} sync="task" /><//>
        <${Defaults} task=${data} /><${Limits} limits=${mine} /></div></div>`;
}

function Head({ task, range }) {
  const jobs = href(`/jobs?q=${encodeURIComponent(`type:${task.name}`)}`);
  return html`<header class="page-head"><div class="page-title"><div class="job-head"><h1><${Text} value=${task.name} /></h1>${!task.registered && html`<span class="chip">not registered here</span>`}</div>
      <p class="faint">task · <a href=${jobs}>its jobs</a> · <a href=${`${jobs}&status=failed`}>those that failed</a> · <a href=${href(`/errors?type=${part(task.name)}`)}>its errors</a></p></div>
    <div class="page-actions"><${Segments} label="Range" value=${range} options=${RANGES} onChange=${(value) => setParams({ range: value === '1h' ? '' : value })} />
      ${can('jobs.enqueue') && task.registered && html`<${Button} icon="play" kind="primary" onClick=${() => openNewJob({ type: task.name })}>Run …<//>`}</div></header>`;
}

function Strip({ task, range }) {
  const { figures } = task;
  return html`<section class="strip" aria-label="Figures">
    <${Stat} label=${`Finished, ${range}`} value=${count(figures.finished)} note=${rate(figures.per_minute)} />
    <${Stat} label="Failed" value=${count(figures.failed)} note=${`${percent(figures.failure_rate)} of finished`} tone=${figures.failed ? 'bad' : ''} to=${href(`/errors?type=${part(task.name)}`)} />
    <${Stat} label="Retried" value=${count(figures.retried)} note="attempts that failed" />
    <${Stat} label="Wait p95" value=${duration(figures.wait.p95)} note=${`p50 ${duration(figures.wait.p50)}`} />
    <${Stat} label="Run p95" value=${duration(figures.run.p95)} note=${`p50 ${duration(figures.run.p50)}`} />
    <${Stat} label="Workers" value=${count(task.workers)} note=${task.workers ? plural(task.workers, 'knows it', 'know it') : 'nobody knows it'} tone=${task.workers ? '' : 'warn'} to=${href('/workers')} />
  </section>`;
}

function Arguments({ task }) {
  const fields = fieldsOf(task.schema);
  if (!fields) return task.schema ? html`<${Panel} title="Arguments"><p class="faint">Any JSON object.</p><//>` : null;
  return html`<${Panel} title="Arguments" note=${fields.length ? plural(fields.length, 'argument') : ''}>
    ${fields.length ? html`<dl class="arguments">${fields.map(({ name, schema, required }) => html`<div key=${name}><dt><code><${Text} value=${name} /></code></dt>
      <dd><span class="faint">${schema.enum ? html`<${Text} value=${schema.enum.map(String).join(' | ')} />` : schema.format || schema.type || 'json'}${schema.nullable ? ' or null' : ''}${required ? '' : ', optional'}</span>
        ${schema.description && html` <${Text} value=${schema.description} />`}</dd></div>`)}</dl>` : html`<p class="faint">It takes none.</p>`}<//>`;
}

function Defaults({ task }) {
  if (!task.registered) return html`<${Panel} title="Defaults"><p class="faint">The application that serves this page does not know this task; its workers do.</p><//>`;
  return html`<${Panel} title="Defaults"><${Facts} rows=${[
    ['Queue', html`<a href=${href(`/queues/${part(task.queue)}`)}><${Text} value=${task.queue} /></a>`],
    ['Priority', task.priority],
    ['Attempts', task.max_attempts],
    ['Timeout', task.timeout ? duration(task.timeout) : 'none'],
    task.schedule && ['Recurs', html`<a href=${href('/schedules')}><${Text} value=${task.schedule} /></a>`],
  ]} /><//>`;
}

function Limits({ limits }) {
  if (!limits.length) return null;
  return html`<${Panel} title="Limits"><ul class="limits">${limits.map((limit) => html`<li key=${limit.name}>
    <div><strong><${Text} value=${limit.name} /></strong>${limit.changed && html` <span class="chip" title="Other numbers than the code's">changed</span>`}
      <p class="faint">${limitWords(limit) || 'no limit'}${limit.keyed ? ', for each key' : ''} · ${count(limit.running)} run, ${count(limit.waiting)} wait</p></div>
    ${can('limits.operate') && html`<${Menu} label="Actions for the limit" items=${[{ label: 'Change', icon: 'edit', run: () => limitTask(limit) }, limit.changed && { label: "The code's numbers again", icon: 'retry', run: () => resetLimit(limit) }].filter(Boolean)} />`}
  </li>`)}</ul><//>`;
}
