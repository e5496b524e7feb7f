/** Queues: how much waits and for how long, how quick they are, and what holds them back. */
import { html } from '../lib.js';
import { part } from '../api.js';
import { useResource } from '../resource.js';
import { href } from '../router.js';
import { queueActions } from '../doing.js';
import { capped, count, duration, rate, visible } from '../format.js';
import { EmptyState, Loaded, PageHead, Panel } from '../components/basics.js';
import { finished } from '../components/History.js';
import { Menu } from '../components/Menu.js';
import { Sign } from '../components/Sign.js';
import { Sparkline } from '../components/Sparkline.js';
import { Table } from '../components/Table.js';
import { Text } from '../components/Text.js';
import { Time } from '../components/Time.js';

const none = html`<span class="faint">–</span>`;

export default function Queues() {
  const queues = useResource('/queues', { every: 5, follow: ({ event }) => event !== 'job:progress', gap: 2500 });
  return html`<${PageHead} title="Queues" note="what waits, and how quickly it is done" />
    <${Panel} flush><${Loaded} from=${queues} lines=${8}>${(data) => html`<${Rows} rows=${data.queues} />`}<//><//>`;
}

export function Paused({ queue }) {
  return queue.paused_at && html`<${Sign} tone="retrying" icon="pause">paused${queue.resume_at && html`, goes on <${Time} at=${queue.resume_at} />`}<//>`;
}

/** "4 at once, 30/m"; what holds it back. */
export function limitWords({ concurrency, rate: pace }) {
  return [concurrency !== null && concurrency !== undefined && `${count(concurrency)} at once`, pace].filter(Boolean).join(', ');
}

function Rows({ rows }) {
  return html`<${Table} label="Queues" class="queues-table" rows=${rows} rowKey=${(row) => row.name}
    empty=${html`<${EmptyState} icon="queues" title="No queue yet"><p>The first job makes the first queue.</p><//>`} columns=${[
    { name: 'name', label: 'Queue', cell: (row) => html`<span class="row"><a class="strong" href=${href(`/queues/${part(row.name)}`)}><${Text} value=${row.name} /></a><${Paused} queue=${row} /></span>` },
    { name: 'series', label: 'Last hour', cell: (row) => html`<${Sparkline} values=${finished(row.series)} label=${`${count(row.figures ? row.figures.finished : 0)} finished in the last hour`} />` },
    { name: 'pending', label: 'Waiting', align: 'end', cell: (row) => (row.pending ? html`<a href=${href(`/jobs?status=pending&q=${encodeURIComponent(`queue:${row.name}`)}`)}>${capped(row.pending, row.cap)}</a>` : html`<span class="faint">0</span>`) },
    { name: 'oldest', label: 'Oldest', align: 'end', cell: (row) => (row.oldest === null ? none : html`<span class=${row.oldest > 300 ? 'warn' : ''}>${duration(row.oldest)}</span>`) },
    { name: 'running', label: 'Running', align: 'end', cell: (row) => count(row.running) },
    { name: 'rate', label: 'Done', align: 'end', cell: (row) => rate(row.per_minute) },
    { name: 'drain', label: 'Drained in', align: 'end', cell: (row) => (row.pending === 0 ? none : row.drain === null ? html`<span class="faint" title="Nothing was finished in the last minutes: nobody knows">–</span>` : duration(row.drain)) },
    { name: 'limit', label: 'Limit', cell: (row) => limitWords(row) || none },
    { name: 'workers', label: 'Workers', align: 'end', cell: (row) => (row.workers ? count(row.workers) : html`<span class=${row.pending ? 'bad' : 'faint'}>none</span>`) },
    { name: 'do', label: 'Actions', sr: true, align: 'end', cell: (row) => { const items = queueActions(row); return items.length > 0 && html`<${Menu} label=${visible(`Actions for ${row.name}`)} items=${items} />`; } },
  ]} />`;
}
