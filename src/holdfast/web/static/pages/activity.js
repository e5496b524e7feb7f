/** Activity: what happens to jobs, as it happens; and what operators did. */
import { html, useState } from '../lib.js';
import { part, search } from '../api.js';
import { stringify } from '../json.js';
import { useResource } from '../resource.js';
import { href, param, setParams } from '../router.js';
import { can } from '../session.js';
import { state } from '../live.js';
import { MOST, tail } from '../tail.js';
import { count, plural, shortId, visible } from '../format.js';
import { Button, EmptyState, Loaded, PageHead, Panel } from '../components/basics.js';
import { Sign } from '../components/Sign.js';
import { LinkTabs } from '../components/Tabs.js';
import { Table } from '../components/Table.js';
import { Text } from '../components/Text.js';
import { Time } from '../components/Time.js';

/** Kind of event -> the status whose sign and colour it has. */
const KINDS = {
  enqueued: 'pending', started: 'running', progress: 'running', complete: 'completed', retrying: 'retrying',
  failed: 'failed', cancelled: 'cancelled', snoozed: 'scheduled', released: 'pending', rescued: 'retrying',
};
const USUAL = Object.keys(KINDS).filter((kind) => kind !== 'progress');

export default function Activity() {
  const tab = param('tab') === 'audit' && can('audit.read') ? 'audit' : 'events';
  const tabs = [{ value: 'events', label: 'Events', to: href('/activity') }, can('audit.read') && { value: 'audit', label: 'Audit log', to: href('/activity?tab=audit') }].filter(Boolean);
  return html`<${PageHead} title="Activity" note=${tab === 'events' ? 'what happens to jobs, as it happens' : 'what operators did'} />
    <section class="panel panel-flush activity" aria-label=${tab === 'events' ? 'Events' : 'Audit log'}><${LinkTabs} label="Activity" value=${tab} tabs=${tabs} />
      ${tab === 'audit' ? html`<${Audit} />` : html`<${Events} />`}</section>`;
}

function Events() {
  const [frozen, setFrozen] = useState(null);
  const kinds = param('kinds') ? param('kinds').split(',').filter((kind) => kind in KINDS) : USUAL;
  const word = param('type');
  const all = tail.value;
  const rows = (frozen || all).filter((row) => kinds.includes(row.event.slice(4)) && (!word || (row.data.type || '').includes(word)));
  const last = frozen && frozen.length ? frozen[0].serial : 0;
  const missed = frozen ? all.filter((row) => row.serial > last).length : 0;
  const toggle = (kind) => {
    const next = kinds.includes(kind) ? kinds.filter((one) => one !== kind) : [...kinds, kind];
    const isUsual = next.length === USUAL.length && USUAL.every((one) => next.includes(one));
    setParams({ kinds: isUsual || !next.length ? '' : Object.keys(KINDS).filter((one) => next.includes(one)).join(',') });
  };
  return html`<div class="activity-bar"><${Button} class="button-small" icon=${frozen ? 'play' : 'pause'} aria-pressed=${Boolean(frozen)} onClick=${() => setFrozen(frozen ? null : all)}>${frozen ? `Go on${missed ? `, ${count(missed)}${missed >= MOST ? '+' : ''} new` : ''}` : 'Pause'}<//>
      <div class="kinds" role="group" aria-label="Kinds of events">${Object.keys(KINDS).map((kind) => html`<button type="button" class="kind" key=${kind} aria-pressed=${kinds.includes(kind)} onClick=${() => toggle(kind)}>${kind}</button>`)}</div>
      <input class="find" type="search" aria-label="Only tasks with this in their name" placeholder="Task" value=${word} onInput=${(event) => setParams({ type: event.target.value })} /></div>
    ${rows.length ? html`<${EventRows} rows=${rows} />` : html`<${Quiet} filtered=${all.length > 0} />`}
    <p class="table-foot faint">${plural(rows.length, 'event')} shown${rows.length >= MOST ? `; older ones are not kept` : ''}; of much that happens, 10 a second of each kind${rows.length && rows[0].position ? ` · position ${rows[0].position}` : ''}</p>`;
}

function Quiet({ filtered }) {
  if (!can('events.read')) return html`<${EmptyState} icon="activity" title="You may not follow events" />`;
  if (filtered) return html`<${EmptyState} icon="search" title="No event fits"><p>Others came. Choose more kinds, or another task.</p><//>`;
  if (state.value === 'polling') return html`<${EmptyState} icon="activity" title="There is no live stream"><p>The server or a proxy between does not let events through. Other pages look every five seconds.</p><//>`;
  return html`<${EmptyState} icon="activity" title="Quiet so far"><p>Events appear here as they happen.</p><//>`;
}

function EventRows({ rows }) {
  return html`<${Table} label="Events, newest first" class="events-table" rows=${rows} rowKey=${(row) => row.serial} columns=${[
    { name: 'at', label: 'When', cell: (row) => html`<span class="num faint"><${Time} at=${row.at} exact /></span>` },
    { name: 'kind', label: 'Kind', cell: (row) => { const kind = row.event.slice(4); return html`<${Sign} tone=${KINDS[kind] || 'pending'} icon=${KINDS[kind] || 'pending'} quiet>${kind}<//>`; } },
    { name: 'job', label: 'Job', cell: (row) => html`<a class="clip" href=${href(`/jobs/${part(row.data.job_id || '')}`)}><${Text} value=${row.data.type || ''} /> <span class="faint mono">…${shortId(row.data.job_id)}</span></a>` },
    { name: 'detail', label: 'Detail', cell: (row) => html`<span class="clip detail" title=${visible(told(row))}><${Text} value=${told(row)} /></span>` },
  ]} />`;
}

function told({ data }) {
  if (data.error) return `${data.error}${data.attempts ? ` (attempt ${data.attempts} of ${data.max_attempts})` : ''}`;
  if (data.progress !== undefined && data.progress !== null) return `${Math.floor(data.progress)} % ${data.message || ''}`;
  if (data.result !== undefined && data.result !== null) return stringify(data.result).slice(0, 200);
  return [data.queue && `queue ${data.queue}`, data.worker_id && `worker ${data.worker_id}`].filter(Boolean).join(', ');
}

function Audit() {
  const after = param('after');
  const audit = useResource(`/audit?${search({ after, limit: 100 })}`, { every: after ? undefined : 10 });
  return html`<${Loaded} from=${audit} lines=${8}>${(data) => html`<${Table} label="Audit log, newest first" class="audit-table" rows=${data.entries} empty=${html`<${EmptyState} icon="access" title="Nobody has changed anything yet" />`} columns=${[
    { name: 'at', label: 'When', cell: (one) => html`<span class="nowrap"><${Time} at=${one.at} exact /></span>` },
    { name: 'actor', label: 'Who', cell: (one) => html`<span class="clip"><${Text} value=${one.actor} /> <span class="faint"><${Text} value=${one.role} /></span></span>` },
    { name: 'action', label: 'Did', cell: (one) => html`<strong><${Text} value=${one.action} /></strong>` },
    { name: 'target', label: 'To', cell: (one) => html`<span class="clip target"><${Text} value=${one.target || '–'} /></span>` },
    { name: 'detail', label: 'Detail', cell: (one) => html`<span class="clip detail mono" title=${visible(words(one.detail))}><${Text} value=${words(one.detail)} /></span>` },
    { name: 'address', label: 'From', cell: (one) => html`<span class="faint"><${Text} value=${one.address || '–'} /></span>` },
  ]} />
    ${(data.next || after) && html`<nav class="table-foot" aria-label="More of the log">${after && html`<a href=${href('/activity?tab=audit')}>Newest</a>`}${data.next && html`<a href=${href(`/activity?tab=audit&after=${part(data.next)}`)}>Older</a>`}</nav>`}`}<//>`;
}

const words = (detail) => Object.entries(detail || {}).map(([name, value]) => `${name}=${typeof value === 'string' ? value : stringify(value)}`).join(' ');
