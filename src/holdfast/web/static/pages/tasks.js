/** Tasks: what can be enqueued, how often it is done, how often it fails, and how long it takes. */
import { html } from '../lib.js';
import { part } from '../api.js';
import { useResource } from '../resource.js';
import { href, param, setParams } from '../router.js';
import { count, duration, percent, visible } from '../format.js';
import { EmptyState, Loaded, PageHead, Panel, Segments } from '../components/basics.js';
import { Icon } from '../components/icons.js';
import { Sparkline } from '../components/Sparkline.js';
import { Table } from '../components/Table.js';
import { Text } from '../components/Text.js';
import { RANGES } from './overview.js';
import { limitWords } from './queues.js';

const ORDERS = {
  name: ['Name', (a, b) => (a.name < b.name ? -1 : 1)],
  busy: ['Busiest', (a, b) => b.figures.finished - a.figures.finished],
  failing: ['Failing', (a, b) => b.figures.failure_rate - a.figures.failure_rate || b.figures.failed - a.figures.failed],
  slow: ['Slowest', (a, b) => (b.figures.run.p95 || 0) - (a.figures.run.p95 || 0)],
};

export default function Tasks() {
  const range = param('range', '1h');
  const order = ORDERS[param('sort')] ? param('sort') : 'name';
  const word = param('find').toLowerCase();
  const tasks = useResource(`/tasks?window=${range}`, { every: 5, follow: ({ event }) => event !== 'job:progress', gap: 3000 });
  return html`<${PageHead} title="Tasks" note=${`in the last ${range}`}>
      <input class="find" type="search" aria-label="Find a task" placeholder="Find a task" value=${param('find')} onInput=${(event) => setParams({ find: event.target.value })} />
      <${Segments} label="Order" value=${order} options=${Object.entries(ORDERS).map(([key, [label]]) => [key, label])} onChange=${(value) => setParams({ sort: value === 'name' ? '' : value })} />
      <${Segments} label="Range" value=${range} options=${RANGES} onChange=${(value) => setParams({ range: value === '1h' ? '' : value })} /><//>
    <${Panel} flush><${Loaded} from=${tasks} lines=${10}>${(data) => html`<${TaskRows} rows=${data.tasks.filter((one) => one.name.toLowerCase().includes(word)).sort(ORDERS[order][1])}
      empty=${word ? html`<${EmptyState} icon="search" title="No task has this in its name" />` : html`<${EmptyState} icon="tasks" title="No task yet"><p>Tasks are functions with @app.task; the application that serves this page knows none.</p><//>`} />`}<//><//>`;
}

/** `brief`: without what a page about a queue says elsewhere. */
export function TaskRows({ rows, empty, brief = false }) {
  const columns = [
    { name: 'name', label: 'Task', cell: (row) => html`<span class="row"><a class="strong clip" title=${visible(row.doc || row.name)} href=${href(`/tasks/${part(row.name)}`)}><${Text} value=${row.name} /></a>
      ${!row.registered && html`<span class="chip" title="The application that serves this page does not know it">not here</span>`}${row.schedule && html`<span class="recurs" title=${visible(row.schedule)}><${Icon} name="schedules" size=${13} /><span class="sr"><${Text} value=${row.schedule} /></span></span>`}</span>` },
    { name: 'series', label: 'Last hour', cell: (row) => html`<${Sparkline} values=${row.lately} width=${84} label=${`${count(row.lately.reduce((sum, one) => sum + one, 0))} finished in the last hour`} />` },
    { name: 'finished', label: 'Finished', align: 'end', cell: (row) => count(row.figures.finished) },
    { name: 'failures', label: 'Failed', align: 'end', cell: (row) => (row.figures.failed ? html`<a class="bad" href=${href(`/errors?type=${part(row.name)}`)}>${percent(row.figures.failure_rate)}</a>` : html`<span class="faint">0 %</span>`) },
    { name: 'wait', label: 'Wait p50 / p95', align: 'end', cell: (row) => html`<span class="nowrap">${duration(row.figures.wait.p50)} / ${duration(row.figures.wait.p95)}</span>` },
    { name: 'run', label: 'Run p50 / p95', align: 'end', cell: (row) => html`<span class="nowrap">${duration(row.figures.run.p50)} / ${duration(row.figures.run.p95)}</span>` },
    { name: 'queue', label: 'Queue', cell: (row) => (row.queue ? html`<a href=${href(`/queues/${part(row.queue)}`)}><${Text} value=${row.queue} /></a>` : html`<span class="faint">–</span>`) },
    { name: 'limit', label: 'Limit', cell: (row) => limitWords(row) || html`<span class="faint">–</span>` },
    { name: 'workers', label: 'Workers', align: 'end', cell: (row) => (row.workers ? count(row.workers) : html`<span class="warn">none</span>`) },
  ];
  return html`<${Table} label="Tasks" class="tasks-table" rows=${rows} rowKey=${(row) => row.name} empty=${empty} columns=${brief ? columns.filter((one) => !['queue', 'limit', 'workers'].includes(one.name)) : columns} />`;
}
