/** Workers: who they are, what they do, and where that stands. */
import { html, useEffect, useState } from '../lib.js';
import { get, part, post } from '../api.js';
import { useResource } from '../resource.js';
import { href } from '../router.js';
import { can, session } from '../session.js';
import { bytes, count, plural, visible } from '../format.js';
import { Button, CopyButton, EmptyState, ErrorState, Loaded, PageHead } from '../components/basics.js';
import { Dialog } from '../components/Dialog.js';
import { Bar } from '../components/Progress.js';
import { Facts, Sign } from '../components/Sign.js';
import { Icon } from '../components/icons.js';
import { Text } from '../components/Text.js';
import { Since, Time } from '../components/Time.js';

const STATES = { live: ['completed', 'check'], draining: ['retrying', 'pause'], silent: ['failed', 'warning'], left: ['cancelled', 'logout'], dead: ['failed', 'failed'] };
const SHOWN = 8;

/** What most of the living run; others have drifted. */
export function usual(values) {
  const counts = new Map();
  for (const one of values) if (one) counts.set(one, (counts.get(one) || 0) + 1);
  return [...counts].sort((a, b) => b[1] - a[1]).map(([value]) => value)[0] || null;
}

export default function Workers() {
  const workers = useResource('/workers', { every: 3 });
  const [asked, setAsked] = useState(null);
  return html`<${PageHead} title="Workers" note=${workers.data ? `${plural(workers.data.workers.filter((one) => ['live', 'draining'].includes(one.state)).length, 'worker')} alive` : ' '} />
    <${Loaded} from=${workers} lines=${8}>${(data) => html`<${Lists} workers=${data.workers} ask=${setAsked} />`}<//>
    ${asked && html`<${Stacks} worker=${asked} onClose=${() => setAsked(null)} />`}`;
}

function Lists({ workers, ask }) {
  const here = workers.filter((one) => !['left', 'dead'].includes(one.state));
  const gone = workers.filter((one) => ['left', 'dead'].includes(one.state));
  const versions = { app: usual(here.map((one) => one.app_version)), own: usual(here.map((one) => one.version)) || session.value.version };
  return html`${here.length ? html`<div class="workers">${here.map((one) => html`<${Card} key=${one.id} worker=${one} versions=${versions} ask=${ask} />`)}</div>`
    : html`<section class="panel" aria-label="No worker"><${EmptyState} icon="workers" title="No worker is alive"><p>Jobs wait until one is started: <code>holdfast worker MODULE:app</code></p><//></section>`}
    ${gone.length > 0 && html`<details class="gone panel"><summary>${plural(gone.length, 'worker')} of the past</summary><ul>${gone.map((one) => html`<li key=${one.id}>
      <${State} worker=${one} /><span class="clip"><${Text} value=${one.id} /></span><span class="faint clip"><${Text} value=${one.host || ''} /> ${one.pid ? `pid ${one.pid}` : ''}</span><span class="faint nowrap"><${Time} at=${one.died_at || one.left_at || one.beat_at} /></span></li>`)}</ul></details>`}`;
}

function State({ worker }) {
  const [tone, icon] = STATES[worker.state] || STATES.dead;
  return html`<${Sign} tone=${tone} icon=${icon}>${worker.state}<//>`;
}

const Drift = ({ what }) => html` <span class="warn" title=${visible(`Others run ${what}`)}><${Icon} name="warning" size=${12} /> differs</span>`;

function Card({ worker, versions, ask }) {
  const { slots, running } = worker;
  const mayAsk = can('workers.operate') && can('jobs.payload') && worker.state !== 'silent';
  return html`<article class="panel worker" aria-label=${visible(worker.id)}>
    <header class="row-between"><div class="worker-name"><h2 class="clip"><${Text} value=${worker.id} /></h2><p class="faint clip"><${Text} value=${worker.host || 'somewhere'} />${worker.pid ? ` · pid ${worker.pid}` : ''}</p></div><${State} worker=${worker} /></header>
    ${slots !== null && html`<div><div class="row-between gauge"><span>${count(running)} of ${plural(slots, 'slot')} in use</span>
      <a href=${href(`/jobs?worker=${part(worker.id)}`)}>its jobs</a></div><${Bar} value=${(100 * (running || 0)) / Math.max(1, slots)} label=${`${running} of ${slots} slots in use`} /></div>`}
    ${worker.jobs.length > 0 ? html`<ul class="worker-jobs">${worker.jobs.slice(0, SHOWN).map((job) => html`<li key=${job.id}><a class="clip" href=${href(`/jobs/${part(job.id)}`)}><${Text} value=${job.type} /></a>
      ${job.stuck && html`<span class="warn nowrap" title="It was asked to stop, or has passed its time, and goes on"><${Icon} name="warning" size=${12} /> stuck</span>`}</li>`)}
      ${(running || 0) > SHOWN && html`<li class="faint">and ${count(running - Math.min(SHOWN, worker.jobs.length))} more</li>`}</ul>` : html`<p class="faint">It runs nothing at the moment.</p>`}
    <${Facts} rows=${[
      ['Heartbeat', html`<span class=${worker.state === 'silent' ? 'bad' : ''}><${Since} from=${worker.beat_at} /> ago</span>`],
      ['Started', html`<${Time} at=${worker.started_at} />`],
      worker.memory !== null && worker.memory !== undefined && ['Memory', bytes(worker.memory)],
      worker.version && ['Holdfast', html`<${Text} value=${worker.version} />${versions.own && worker.version !== versions.own && html`<${Drift} what=${versions.own} />`}`],
      (worker.app_version || versions.app) && ['Application', html`<${Text} value=${worker.app_version || 'not told'} />${versions.app && worker.app_version !== versions.app && html`<${Drift} what=${versions.app} />`}`],
      ['Queues', worker.queues.length ? worker.queues.map((one, index) => html`${index ? ', ' : ''}<a key=${one} href=${href(`/queues/${part(one)}`)}><${Text} value=${one} /></a>`) : 'all'],
    ]} />
    <footer class="row-between"><details class="worker-tasks"><summary>${worker.tasks ? plural(worker.tasks.length, 'task') : 'any task'}</summary>
        ${worker.tasks && html`<p class="row">${worker.tasks.map((one) => html`<a class="chip" key=${one} href=${href(`/tasks/${part(one)}`)}><${Text} value=${one} /></a>`)}</p>`}</details>
      ${mayAsk && html`<${Button} class="button-small" onClick=${() => ask(worker)}>Where it stands<//>`}</footer></article>`;
}

const PAUSE = 700;
const PATIENCE = 60_000;

/** Asks a worker where its runs stand, and waits for the answer, which comes with a beat. */
function Stacks({ worker, onClose }) {
  const [found, setFound] = useState(null);
  const [error, setError] = useState(null);
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    let stopped = false;
    const path = `/workers/${part(worker.id)}/stacks`;
    const look = async () => {
      try {
        await post(path);
        const end = performance.now() + PATIENCE;
        while (!stopped) {
          const answer = await get(path);
          if (stopped) return;
          if (answer.at && answer.asked_at && answer.at >= answer.asked_at) { setFound(answer); return; }
          if (performance.now() > end) throw { title: 'No answer', detail: 'The worker did not answer in a minute. It may be busy, silent, or of an older release.' };
          await new Promise((resolve) => setTimeout(resolve, PAUSE));
        }
      } catch (problem) {
        if (!stopped) setError(problem);
      }
    };
    setFound(null);
    setError(null);
    look();
    return () => { stopped = true; };
  }, [worker.id, turn]);
  return html`<${Dialog} title="Where it stands" onClose=${onClose} class="stacks" wide>
    <p class="faint"><${Text} value=${worker.id} />${found && html` · <${Time} at=${found.at} exact />`}</p>
    ${error && html`<${ErrorState} error=${error} retry=${() => setTurn(turn + 1)} />`}
    ${!found && !error && html`<p role="status" class="waiting">Asked. The answer comes with the worker's next beat.</p>`}
    ${found && html`<div class="trace"><div class="json-tools"><${CopyButton} label="Copy the stacks" text=${found.text || ''} /></div><pre class="stack-text" tabindex="0" aria-label="Stacks"><${Text} value=${found.text || 'It runs nothing.'} /></pre></div>
      <footer class="dialog-foot"><${Button} icon="retry" onClick=${() => setTurn(turn + 1)}>Ask again<//></footer>`}<//>`;
}
