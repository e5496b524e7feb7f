/** Jobs: searched, followed, and changed many at a time. */
import { html, useEffect, useRef, useState } from '../lib.js';
import { apiUrl, search } from '../api.js';
import { route, setParams, href } from '../router.js';
import { useJobs, PAGE } from '../joblist.js';
import { useKeys } from '../keys.js';
import { can } from '../session.js';
import { actionsOf } from '../actions.js';
import { capped, cappedShort, plural, secondsBetween, duration, shortId, visible } from '../format.js';
import { Button, EmptyState, ErrorState, PageHead, Skeleton, copyText } from '../components/basics.js';
import { bulk } from '../components/Operations.js';
import { LinkTabs } from '../components/Tabs.js';
import { Menu } from '../components/Menu.js';
import { Progress } from '../components/Progress.js';
import { QueryBar } from '../components/QueryBar.js';
import { STATUSES, StatusBadge } from '../components/Status.js';
import { Text } from '../components/Text.js';
import { Time, Since } from '../components/Time.js';
import { Table } from '../components/Table.js';

// A status is asked for in the search or by a tab, not by both.
const STATED = /(^|\s)status:\S*/;
const PLAIN = ['type', 'queue', 'key', 'worker', 'entity', 'since', 'until'];

/** What the address asks for, in the API's words. */
function filterOf(params) {
  const filter = { q: params.get('q') || '', status: params.getAll('status') };
  for (const name of PLAIN) if (params.get(name)) filter[name] = params.get(name);
  return filter;
}

/** The same filter as the body of a bulk action wants it. */
export const bodyOf = (filter) => Object.fromEntries(Object.entries(filter).filter(([, value]) => value.length));

export default function Jobs() {
  const { params } = route.value;
  const filter = filterOf(params);
  const shown = search(filter);
  const [picked, setPicked] = useState(() => new Set());
  const [all, setAll] = useState(false);
  const busy = useRef(false);
  busy.current = picked.size > 0 || all;
  const list = useJobs(filter, () => busy.current || scrollY > 240);
  useEffect(() => { setPicked(new Set()); setAll(false); }, [shown]);
  const rows = list.rows || [];
  const clear = () => { setPicked(new Set()); setAll(false); };
  const toggle = (id) => {
    const next = new Set(picked);
    if (!next.delete(id)) next.add(id);
    setAll(false);
    setPicked(next);
  };
  useRowKeys(toggle, clear, [picked]);
  const words = describe(filter);
  const run = async (action) => {
    const what = all ? { filter: bodyOf(filter) } : { ids: [...picked] };
    if (await bulk(action, what, all ? words : undefined)) clear();
  };
  return html`<${PageHead} title="Jobs"><${Export} filter=${filter} /><//>
    <${QueryBar} value=${filter.q} placeholder='Search: words, or type: status: queue: error: payload.user.id:7 after:1h' onSearch=${(q) => setParams(STATED.test(q) ? { q, status: '' } : { q }, { replace: false })} />
    <${Chips} params=${params} />
    <section class="panel panel-flush jobs-panel" aria-label="Jobs">
      <${StatusTabs} list=${list} filter=${filter} />
      <${Bar} list=${list} picked=${picked} all=${all} setAll=${setAll} setPicked=${setPicked} clear=${clear} run=${run} />
      ${list.error && html`<div class="jobs-error"><${ErrorState} error=${list.error} retry=${list.reload} compact /></div>`}
      ${list.waiting > 0 && html`<button type="button" class="fresh" onClick=${() => { list.reload(); scrollTo(0, 0); }}>${list.waiting >= PAGE ? `${PAGE}+ new jobs` : plural(list.waiting, 'new job')} – show</button>`}
      ${!list.rows && !list.error && html`<${Skeleton} lines=${12} />`}
      ${list.rows && html`<${Rows} rows=${rows} list=${list} picked=${picked} all=${all} toggle=${toggle} filtered=${Boolean(shown)} />`}
      ${list.rows && (rows.length > 0 || list.next) && html`<footer class="table-foot"><span class="faint">${plural(rows.length, 'job')} ${rows.length ? 'shown' : 'found so far'}</span>
        ${list.next && html`<${Button} busy=${list.more} onClick=${() => list.loadMore()}>${rows.length ? 'Load more' : 'Look further'}<//>`}</footer>`}
    </section>`;
}

/** The filter in words, for questions. */
function describe(filter) {
  const parts = Object.entries(bodyOf(filter)).map(([name, value]) => `${name === 'q' ? 'search' : name}: ${[].concat(value).join(', ')}`);
  return parts.length ? `All jobs with ${parts.join(' · ')}` : 'All jobs, without any filter';
}

function useRowKeys(toggle, clear, inputs) {
  const move = (step) => () => {
    const links = [...document.querySelectorAll('[data-row]')];
    const at = links.findIndex((link) => link.closest('tr').contains(document.activeElement));
    const to = links[at < 0 ? (step > 0 ? 0 : links.length - 1) : Math.max(0, Math.min(links.length - 1, at + step))];
    if (to) { to.focus(); to.scrollIntoView({ block: 'nearest' }); }
  };
  const focused = () => { const row = document.activeElement && document.activeElement.closest('tr[data-id]'); return row && row.dataset.id; };
  useKeys([
    ['j', move(1), 'Next row'], ['k', move(-1), 'Row before'],
    ['x', () => { const id = focused(); if (id) toggle(id); }, 'Select the row'], ['Escape', clear, 'Select nothing'],
  ], inputs, 'Jobs');
}

function StatusTabs({ list, filter }) {
  const { stats, cap } = list.answer || {};
  const chosen = filter.status.length === 1 ? filter.status[0] : filter.status.length ? 'several' : 'all';
  const to = (status) => { const query = search({ ...filter, q: status.length ? filter.q.replace(STATED, ' ').trim() : filter.q, status }); return href(`/jobs${query ? `?${query}` : ''}`); };
  // The counts are of all jobs; beside another filter they would say what is not shown.
  const counted = stats && isCounted(filter);
  const tabs = [{ value: 'all', label: 'All', to: to([]) }, ...STATUSES.map((status) => ({
    value: status, label: status[0].toUpperCase() + status.slice(1), to: to([status]),
    tone: counted && stats[status] ? status : undefined, count: counted ? cappedShort(stats[status], cap) : undefined,
  }))];
  return html`<${LinkTabs} label="Status" value=${chosen} tabs=${tabs} />`;
}

function Chips({ params }) {
  const found = PLAIN.filter((name) => params.get(name));
  return found.length > 0 && html`<div class="row chips">${found.map((name) => html`<button type="button" class="chip" key=${name} onClick=${() => setParams({ [name]: '' })}
    aria-label=${visible(`Remove the filter ${name}: ${params.get(name)}`)}>${name}: <${Text} value=${params.get(name)} /> ×</button>`)}</div>`;
}

function Export({ filter }) {
  const items = [
    { label: 'CSV', icon: 'download', href: apiUrl('/export', { ...filter, format: 'csv' }), download: true },
    { label: 'JSON lines', icon: 'download', href: apiUrl('/export', { ...filter, format: 'jsonl' }), download: true },
    null, { label: 'Copy a link to this view', icon: 'link', run: () => copyText(location.href, 'Link copied') },
  ];
  return html`<${Menu} label="Export" text="Export" items=${items} />`;
}

function Bar({ list, picked, all, setAll, setPicked, clear, run }) {
  const rows = list.rows || [];
  const { stats, cap } = list.answer || {};
  const whole = rows.length > 0 && rows.every((job) => picked.has(job.id));
  const selecting = all || picked.size > 0;
  const flip = () => { setAll(false); setPicked(whole || all ? new Set() : new Set(rows.map((job) => job.id))); };
  const total = stats ? totalOf(list) : null;
  return html`<div class=${`jobs-bar ${selecting ? 'selecting' : ''}`}>
    <input type="checkbox" aria-label="Select all rows" checked=${all || whole} indeterminate=${!all && !whole && picked.size > 0} disabled=${!rows.length} onChange=${flip} />
    ${!selecting && html`<span class="faint">${total === null ? (rows.length ? `${plural(rows.length, 'job')}${list.next ? ', and more' : ''}` : ' ') : `${capped(total, cap)} ${total === 1 ? 'job' : 'jobs'}`}</span>`}
    ${selecting && html`<strong>${all ? 'All that match' : `${plural(picked.size, 'job')} selected`}</strong>
      ${whole && !all && list.next && html`<button type="button" class="link" onClick=${() => setAll(true)}>Select all ${total === null || total >= cap ? 'that match' : `${capped(total, cap)} that match`}</button>`}
      <button type="button" class="link" onClick=${clear}>Clear</button><span class="spacer"></span>
      ${can('jobs.operate') && html`<${Button} icon="retry" onClick=${() => run('retry')}>Retry<//><${Button} icon="cancel" onClick=${() => run('cancel')}>Cancel<//>`}
      ${can('jobs.delete') && html`<${Button} icon="trash" kind="bad" onClick=${() => run('delete')}>Delete<//>`}`}
  </div>`;
}

/** The counts are those of all jobs: under a search nobody has counted. */
/** Whether the counts by status say how many match: only where nothing else is asked for. */
const isCounted = (filter) => Object.keys(bodyOf(filter)).every((name) => name === 'status');

function totalOf(list) {
  const { stats } = list.answer;
  if (Object.entries(list.params).some(([name, value]) => name !== 'status' && value)) return null;
  const wanted = list.params.status.length ? list.params.status : Object.keys(stats);
  return wanted.reduce((sum, status) => sum + (stats[status] || 0), 0);
}

function Rows({ rows, list, picked, all, toggle, filtered }) {
  const empty = filtered
    ? html`<${EmptyState} icon="search" title="No job matches"><a href=${href('/jobs')}>Show all jobs</a><//>`
    : html`<${EmptyState} title="No jobs yet"><p>Enqueue one from your code, with the command, or with “New job”.</p><//>`;
  const columns = [
    { name: 'pick', label: 'Select', sr: true, cell: (job) => html`<input type="checkbox" aria-label=${visible(`Select ${job.type} ${shortId(job.id)}`)} checked=${all || picked.has(job.id)} onChange=${() => toggle(job.id)} />` },
    { name: 'status', label: 'Status', cell: (job) => html`<${StatusBadge} status=${job.status} />` },
    { name: 'what', label: 'Job', cell: (job) => html`<span class="job-name"><a data-row class="clip" href=${href(`/jobs/${job.id}`)} title=${visible(job.type)}><${Text} value=${job.type} /></a>
        <small class="clip">…${shortId(job.id)}${about(job)}</small></span>` },
    { name: 'detail', label: 'Detail', cell: (job) => html`<${Detail} job=${job} />` },
    { name: 'queue', label: 'Queue', class: 'clip', cell: (job) => html`<${Text} value=${job.queue} />` },
    { name: 'tries', label: 'Attempt', align: 'end', cell: (job) => html`<span class=${job.attempts > 1 ? '' : 'faint'}>${job.attempts}/${job.max_attempts}</span>` },
    { name: 'took', label: 'Took', align: 'end', cell: (job) => html`<${Took} job=${job} />` },
    { name: 'when', label: 'When', align: 'end', cell: (job) => html`<${When} job=${job} />` },
    { name: 'do', label: 'Actions', sr: true, align: 'end', cell: (job) => html`<${RowMenu} job=${job} list=${list} />` },
  ];
  return html`<${Table} label="Jobs, newest first" class="jobs-table" columns=${columns} rows=${rows} empty=${empty}
    rowProps=${(job) => ({ 'data-id': job.id, class: `${all || picked.has(job.id) ? 'selected' : ''} ${job.moved ? 'moved' : ''}` })} />`;
}

const about = (job) => html`${job.entity_type && html` · <${Text} value=${`${job.entity_type}:${job.entity_id}`} />`}${job.key && html` · <${Text} value=${job.key} />`}`;

function Detail({ job }) {
  if (job.status === 'running' && job.progress !== null) return html`<div class="job-detail"><${Progress} job=${job} /></div>`;
  if (job.error && ['failed', 'retrying', 'cancelled'].includes(job.status)) return html`<div class="job-detail"><span class="bad clip" title=${visible(job.error)}><${Text} value=${job.error} /></span></div>`;
  if (job.message && job.status === 'running') return html`<div class="job-detail clip"><${Text} value=${job.message} /></div>`;
  return null;
}

function Took({ job }) {
  if (job.status === 'running' && job.started_at) return html`<${Since} from=${job.started_at} />`;
  const took = secondsBetween(job.started_at, job.completed_at);
  return took === null ? html`<span class="faint">–</span>` : duration(Math.max(0, took));
}

function When({ job }) {
  if (['scheduled', 'retrying'].includes(job.status)) return html`<${Time} at=${job.run_at} />`;
  return html`<${Time} at=${job.completed_at || job.started_at || job.created_at} />`;
}

function RowMenu({ job, list }) {
  const items = actionsOf(job, { done: (answer) => list.replace(answer), gone: () => list.reload() });
  return items.length > 0 && html`<${Menu} label=${visible(`Actions for ${job.type} ${shortId(job.id)}`)} items=${items} />`;
}
