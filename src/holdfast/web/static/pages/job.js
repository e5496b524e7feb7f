/** One job: what happened, when, where and why, and what can be done about it. */
import { html, useEffect, useState } from '../lib.js';
import { part } from '../api.js';
import { useResource } from '../resource.js';
import { listen } from '../live.js';
import { go, href } from '../router.js';
import { can } from '../session.js';
import { touched } from '../joblist.js';
import { actionsOf, duplicate, snippets } from '../actions.js';
import { duration, secondsBetween, plural } from '../format.js';
import { Button, CopyButton, EmptyState, ErrorState, Loaded, Panel, Skeleton, copyText } from '../components/basics.js';
import { JsonTree } from '../components/JsonTree.js';
import { Logs } from '../components/Logs.js';
import { Menu } from '../components/Menu.js';
import { Progress } from '../components/Progress.js';
import { FINISHED, StatusBadge } from '../components/Status.js';
import { Icon } from '../components/icons.js';
import { Text } from '../components/Text.js';
import { Time, Since } from '../components/Time.js';
import { Timeline } from '../components/Timeline.js';
import { Trace } from '../components/Trace.js';

export default function JobPage({ id }) {
  const path = `/jobs/${part(id)}`;
  const follow = ({ event, data }) => data.job_id === id && event !== 'job:progress';
  const job = useResource(path, { follow, gap: 300 });
  const attempts = useResource(`${path}/attempts`, { follow, gap: 300 });
  useEffect(() => listen((events) => {
    const mine = events.filter((one) => one.data.job_id === id);
    if (mine.length && job.data) job.set(mine.reduce(touched, job.data));
  }), [job, id]);
  useEffect(() => { if (job.data) document.title = `${job.data.type} · Holdfast`; }, [job.data && job.data.type]);
  // Also one that is gone since: what can be done with it is then nothing.
  if (job.error && job.error.status === 404) return html`<h1 class="sr">Job</h1><${EmptyState} icon="search" title="There is no such job"><p><${Text} value=${job.error.detail} /></p><a href=${href('/jobs')}>All jobs</a><//>`;
  if (!job.data) {
    return html`<h1 class="sr">Job</h1>${job.error ? html`<${ErrorState} error=${job.error} retry=${job.reload} />` : html`<${Panel}><${Skeleton} lines=${10} /><//>`}`;
  }
  return html`<${Head} job=${job.data} resource=${job} />
    ${job.error && html`<${ErrorState} error=${job.error} retry=${job.reload} compact />`}
    <div class="job-page"><div class="stack">
      <${State} job=${job.data} path=${path} />
      ${job.data.error && job.data.status !== 'completed' && html`<div class="notice notice-bad"><${Icon} name="warning" /><div><strong>${job.data.status === 'retrying' ? 'The last attempt failed' : 'Error'}</strong><p class="mono"><${Text} value=${job.data.error} /></p></div></div>`}
      <${Bodies} job=${job.data} />
      <${Logs} job=${job.data} path=${path} />
      <${Panel} title="Attempts" note=${attempts.data && attempts.data.attempts.length ? plural(attempts.data.attempts.length, 'run') : ''} flush><${Loaded} from=${attempts}>${(data) => html`<${Attempts} list=${data.attempts} job=${job.data} />`}<//><//>
    </div><div class="stack"><${Facts} job=${job.data} /><${Parents} job=${job.data} path=${path} /></div></div>`;
}

function Head({ job, resource }) {
  const actions = actionsOf(job, { done: (answer) => { resource.set({ ...resource.data, ...answer }); resource.reload(); }, gone: () => go('/jobs') });
  const main = actions.filter((one) => ['retry', 'run', 'cancel', 'release'].includes(one.name)).slice(0, 2);
  const whole = !isHidden(job);
  const copies = () => snippets(job);
  const rest = [
    ...actions.filter((one) => !main.includes(one) && !one.danger),
    whole && can('jobs.enqueue') && { label: 'Duplicate with changes', icon: 'copy', run: () => duplicate(job) },
    null,
    whole && { label: 'Copy as curl', icon: 'copy', run: () => copyText(copies().curl, 'Copied as curl') },
    whole && { label: 'Copy as Python', icon: 'copy', run: () => copyText(copies().python, 'Copied as Python') },
    whole && { label: 'Copy as command', icon: 'copy', run: () => copyText(copies().command, 'Copied as a command') },
    { label: 'Copy link', icon: 'link', run: () => copyText(location.href, 'Link copied') },
    actions.some((one) => one.danger) && null,
    ...actions.filter((one) => one.danger),
  ].filter((one) => one !== false && one !== undefined);
  return html`<header class="page-head"><div class="page-title"><div class="job-head"><h1><${Text} value=${job.type} /></h1><${StatusBadge} status=${job.status} /></div>
      <div class="job-id">${job.id}<${CopyButton} text=${job.id} label="Copy the id" /></div></div>
    <div class="page-actions">${main.map((one) => html`<${Button} key=${one.name} icon=${one.icon} kind=${one.name === 'retry' ? 'primary' : ''} onClick=${one.run}>${one.label}<//>`)}
      <${Menu} label="More actions" text="More" items=${rest} /></div></header>`;
}

function State({ job, path }) {
  const waits = ['pending', 'blocked', 'scheduled', 'retrying'].includes(job.status);
  const why = useResource(waits ? `${path}/why` : null, { every: 5 });
  const reasons = waits && why.data ? why.data.reasons : [];
  return html`<${Panel} title="Timeline"><div class="stack">
    <${Timeline} job=${job} />
    ${job.progress !== null && job.progress !== undefined && !['pending', 'scheduled', 'completed'].includes(job.status) && html`<${Progress} job=${job} wide />`}
    ${reasons.length > 0 && html`<div class="notice notice-info notice-compact"><${Icon} name="info" /><div><strong>Why it waits</strong><ul class="reasons">${reasons.map((one) => html`<li key=${one}><${Text} value=${one} /></li>`)}</ul></div></div>`}
  </div><//>`;
}

const isHidden = (job) => job.payload === undefined || (job.hidden || []).includes('payload');

function Bodies({ job }) {
  if (isHidden(job)) return html`<${Panel} title="Arguments"><p class="faint">You may not see arguments and results.</p><//>`;
  const hasResult = job.status === 'completed' || (job.result !== null && job.result !== undefined);
  const none = job.payload !== null && typeof job.payload === 'object' && !Object.keys(job.payload).length;
  return html`<${Panel} title="Arguments">${none ? html`<p class="faint">None.</p>` : html`<${JsonTree} value=${job.payload} label="Arguments" />`}<//>
    ${hasResult && html`<${Panel} title="Result"><${JsonTree} value=${job.result ?? null} label="Result" /><//>`}`;
}

function Attempts({ list, job }) {
  if (!list.length) return html`<p class="panel-note faint">${job.attempts > 0 ? 'No attempt has failed.' : 'It has not run yet.'}</p>`;
  return list.map((one, index) => html`<${Attempt} key=${`${one.attempt}-${one.started_at}`} attempt=${one} first=${index === 0} />`);
}

function Attempt({ attempt, first }) {
  const [open, setOpen] = useState(first && Boolean(attempt.trace || attempt.error));
  const took = secondsBetween(attempt.started_at, attempt.finished_at);
  return html`<details class="attempt" open=${open} onToggle=${(event) => setOpen(event.currentTarget.open)}>
    <summary><span class="num faint">#${attempt.attempt}</span><${StatusBadge} status=${attempt.status} quiet />
      <span class="clip faint"><${Text} value=${open ? '' : attempt.error || ''} /></span>
      <span class="num">${took === null ? html`<${Since} from=${attempt.started_at} />` : duration(took)}</span><span class="faint nowrap"><${Time} at=${attempt.started_at} /></span></summary>
    ${open && html`<div class="attempt-body"><p class="faint">Worker <a href=${href(`/jobs?worker=${encodeURIComponent(attempt.worker_id || '')}`)}><${Text} value=${attempt.worker_id || '–'} /></a> · started <${Time} at=${attempt.started_at} exact millis /></p>
      ${attempt.trace ? html`<${Trace} text=${attempt.trace} />` : attempt.error && html`<p class="mono bad"><${Text} value=${attempt.error} /></p>`}</div>`}</details>`;
}

const search = (words) => href(`/jobs?q=${encodeURIComponent(words)}`);
const linked = (qualifier, value) => html`<a href=${search(`${qualifier}:${/\s/.test(value) ? `"${value}"` : value}`)}><${Text} value=${value} /></a>`;

function Facts({ job }) {
  const rows = [
    ['Task', linked('type', job.type)],
    ['Queue', linked('queue', job.queue)],
    ['Priority', job.priority],
    ['Attempts', `${job.attempts} of ${job.max_attempts}`],
    job.deaths > 0 && ['Deaths of its process', html`<span class="bad">${job.deaths}</span>`],
    job.crashes > 0 && ['Crashes', html`<span class="bad">${job.crashes}</span>`],
    job.key && ['Key', linked('key', job.key)],
    job.idempotency_key && ['Idempotency key', html`<${Text} value=${job.idempotency_key} />`],
    job.entity_type && ['About', linked('entity', `${job.entity_type}:${job.entity_id}`)],
    job.worker_id && ['Worker', linked('worker', job.worker_id)],
    job.limit_key && ['Limit key', html`<${Text} value=${job.limit_key} />`],
    job.workflow_id && ['Workflow', html`<a href=${href(`/workflows/${part(job.workflow_id)}`)}><${Text} value=${job.node || job.workflow_id} /></a>`],
    job.schedule && ['Recurring', html`<a href=${href('/schedules')}>${job.enabled === false ? 'disabled' : 'enabled'}</a>${job.disabled_because && html`<p class="faint"><${Text} value=${job.disabled_because} /></p>`}`],
    ['Created', html`<${Time} at=${job.created_at} />`],
    !FINISHED.includes(job.status) && job.status !== 'running' && ['Due', html`<${Time} at=${job.run_at} />`],
    ['Changed', html`<${Time} at=${job.updated_at} />`],
    job.expires_at && ['Expires', html`<${Time} at=${job.expires_at} />`],
    job.prune_error && ['Not pruned', html`<span class="bad"><${Text} value=${job.prune_error} /></span>`],
  ].filter(Boolean);
  return html`<${Panel} title="Facts"><dl class="facts">${rows.map(([name, value]) => html`<dt key=${`${name}-`}>${name}</dt><dd key=${name}>${value}</dd>`)}</dl><//>`;
}

function Parents({ job, path }) {
  const parents = useResource(job.workflow_id ? `${path}/parents` : null);
  const list = (parents.data && parents.data.parents) || [];
  return list.length > 0 && html`<${Panel} title="Waits for" flush><ul>${list.map((one) => html`<li class="error-row" key=${one.id}>
    <a class="clip" href=${href(`/jobs/${part(one.id)}`)}><${Text} value=${one.node || one.type || one.id} /></a>${one.status ? html`<${StatusBadge} status=${one.status} quiet />` : html`<span class="faint">gone</span>`}
    <small><${Text} value=${one.policy} /></small></li>`)}</ul><//>`;
}
