/** Schedules: in words, with the runs to come and how the last ones went. */
import { html } from '../lib.js';
import { part, search } from '../api.js';
import { useResource } from '../resource.js';
import { href, param } from '../router.js';
import { enableSchedule, scheduleActions, scheduleName } from '../doing.js';
import { can } from '../session.js';
import { clock, duration, fullTime, plural, visible } from '../format.js';
import { present } from '../clock.js';
import { EmptyState, Loaded, PageHead, Panel } from '../components/basics.js';
import { Menu } from '../components/Menu.js';
import { Sign, Switch } from '../components/Sign.js';
import { StatusBadge } from '../components/Status.js';
import { Icon } from '../components/icons.js';
import { Text } from '../components/Text.js';
import { Time } from '../components/Time.js';

const STRIP = 20;

export default function Schedules() {
  const after = param('after');
  const query = search({ after, limit: 50 });
  const schedules = useResource(`/schedules?${query}`, { every: 5, follow: ({ event }) => event !== 'job:progress' && event !== 'job:enqueued', gap: 2000 });
  return html`<${PageHead} title="Schedules" note="jobs that recur" />
    <${Panel} flush title=""><${Loaded} from=${schedules} lines=${8}>${(data) => html`<${List} data=${data} after=${after} />`}<//><//>`;
}

function List({ data, after }) {
  if (!data.schedules.length) return html`<${EmptyState} icon="schedules" title="Nothing recurs"><p>Give a task a cron or an interval, or schedule a job with a key.</p><//>`;
  return html`<ul class="schedules">${data.schedules.map((job) => html`<${Row} key=${job.id} job=${job} />`)}</ul>
    ${(data.next || after) && html`<nav class="table-foot" aria-label="More schedules">${after && html`<a href=${href('/schedules')}>First</a>`}${data.next && html`<a href=${href(`/schedules?after=${part(data.next)}`)}>More</a>`}</nav>`}`;
}

function Row({ job }) {
  const actions = scheduleActions(job);
  const name = visible(scheduleName(job));
  const late = job.enabled && job.status === 'pending';
  return html`<li class=${`schedule ${job.enabled ? '' : 'disabled'}`}>
    <div class="schedule-name"><a class="strong" href=${href(`/jobs/${part(job.id)}`)}><${Text} value=${job.type} /></a>${job.key && job.key !== '@code' && html` <code class="faint"><${Text} value=${job.key} /></code>`}
      <p><${Text} value=${job.words} /></p>
      <p class="faint">${job.timezone && !job.words.includes(job.timezone) ? html`<${Text} value=${job.timezone} /> · ` : ''}queue <a href=${href(`/queues/${part(job.queue)}`)}><${Text} value=${job.queue} /></a>
        ${job.status === 'running' || job.status === 'retrying' || late ? html` · <${StatusBadge} status=${job.status} quiet />` : ''}</p></div>
    <div class="schedule-next"><p class="faint small">Next</p>${job.enabled ? html`<ol>${job.next_runs.map((at, index) => html`<li key=${at}>${index === 0 ? html`<strong><${Time} at=${at} /></strong>` : html`<time datetime=${at} title=${fullTime(at)}>${clock(at, present())}</time>`}</li>`)}</ol>`
      : html`<${Sign} tone="cancelled" icon="pause">disabled<//>${job.disabled_because && html`<p class="faint"><${Text} value=${job.disabled_because} /></p>`}`}</div>
    <div class="schedule-last"><${Strip} history=${job.history} name=${name} />
      ${job.last_error && html`<p class="bad clip" title=${visible(job.last_error)}><${Icon} name="warning" size=${12} /> ${job.consecutive_failures > 1 ? `${plural(job.consecutive_failures, 'failure')} in a row: ` : ''}<${Text} value=${job.last_error} /></p>`}</div>
    <div class="schedule-do">${can('schedules.operate') ? html`<${Switch} on=${job.enabled} label=${`${name}: ${job.enabled ? 'enabled' : 'disabled'}`} onChange=${(on) => enableSchedule(job, on)} />` : html`<span class="faint">${job.enabled ? 'enabled' : 'disabled'}</span>`}
      ${actions.length > 0 && html`<${Menu} label=${`Actions for ${name}`} items=${actions} />`}</div></li>`;
}

/** Old to new: how high says how long, a filled foot that it failed. */
function Strip({ history, name }) {
  const runs = history.slice(0, STRIP).reverse();
  if (!runs.length) return html`<p class="faint">No run yet.</p>`;
  const top = Math.max(...runs.map((run) => run.seconds || 0), 0.001);
  const failed = runs.filter((run) => run.status === 'failed').length;
  const last = history[0];
  return html`<div class="runs-line"><div class="runs" role="img" aria-label=${`${name}: ${plural(runs.length, 'run')}, ${failed} failed`}>${Array.from({ length: STRIP - runs.length }, (_, index) => html`<span key=${`none-${index}`}></span>`)}
      ${runs.map((run) => html`<span key=${run.finished_at} class=${`run-${run.status}`} title=${visible(`${run.status} ${clock(run.finished_at, present())}, took ${duration(run.seconds)}${run.error ? `\n${run.error}` : ''}`)}>
        <i style=${{ height: `${run.status === 'failed' ? 100 : Math.max(14, (100 * (run.seconds || 0)) / top)}%` }}></i></span>`)}</div>
    <small>${failed ? `${failed} of ${runs.length} failed` : `last ${plural(runs.length, 'run')} fine`} · <${Time} at=${last.finished_at} /></small></div>`;
}
