/** Workflows, the newest first, and how far each has come. */
import { html } from '../lib.js';
import { part, search } from '../api.js';
import { useResource } from '../resource.js';
import { href, param } from '../router.js';
import { count, duration, secondsBetween, shortId } from '../format.js';
import { EmptyState, Loaded, PageHead, Panel } from '../components/basics.js';
import { STATUSES, StatusBadge } from '../components/Status.js';
import { Table } from '../components/Table.js';
import { Text } from '../components/Text.js';
import { Since, Time } from '../components/Time.js';

const ORDER = ['completed', 'failed', 'cancelled', 'running', 'retrying', 'pending', 'scheduled', 'blocked'];

export default function Workflows() {
  const after = param('after');
  const flows = useResource(`/workflows?${search({ after, limit: 50 })}`, { every: 5, follow: ({ event }) => event !== 'job:progress', gap: 1500 });
  return html`<${PageHead} title="Workflows" note="jobs that wait for other jobs" />
    <${Panel} flush><${Loaded} from=${flows} lines=${8}>${(data) => html`<${Rows} rows=${data.workflows} />
      ${(data.next || after) && html`<nav class="table-foot" aria-label="More workflows">${after && html`<a href=${href('/workflows')}>Newest</a>`}${data.next && html`<a href=${href(`/workflows?after=${part(data.next)}`)}>Older</a>`}</nav>`}`}<//><//>`;
}

export const total = (counts) => Object.values(counts).reduce((sum, one) => sum + one, 0);
export const finishedOf = ({ completed = 0, failed = 0, cancelled = 0 }) => completed + failed + cancelled;

/** One bar, a piece for each status; the words beside it say the same. */
export function Pieces({ counts, label }) {
  const all = total(counts) || 1;
  const present = ORDER.filter((status) => counts[status]);
  return html`<span class="pieces" role="img" aria-label=${`${label}: ${present.map((status) => `${counts[status]} ${status}`).join(', ') || 'empty'}`}>
    ${present.map((status) => html`<i key=${status} class=${`tone-${status}`} title=${`${counts[status]} ${status}`} style=${{ flexGrow: counts[status] / all }}></i>`)}</span>`;
}

export function Took({ flow }) {
  if (!flow.finished_at) return html`<${Since} from=${flow.created_at} />`;
  return duration(secondsBetween(flow.created_at, flow.finished_at));
}

function Rows({ rows }) {
  return html`<${Table} label="Workflows, newest first" class="workflows-table" rows=${rows} empty=${html`<${EmptyState} icon="workflows" title="No workflow yet"><p>app.workflow(), app.chain() and app.batch() make them.</p><//>`} columns=${[
    { name: 'name', label: 'Workflow', cell: (flow) => html`<span class="job-name"><a class="strong clip" href=${href(`/workflows/${part(flow.id)}`)}><${Text} value=${flow.name} /></a><small>…${shortId(flow.id)}</small></span>` },
    { name: 'status', label: 'Status', cell: (flow) => html`<${FlowStatus} flow=${flow} />` },
    { name: 'pieces', label: 'Progress', cell: (flow) => html`<${Pieces} counts=${flow.counts} label=${flow.name} />` },
    { name: 'done', label: 'Finished', align: 'end', cell: (flow) => html`<span class="nowrap">${count(finishedOf(flow.counts))} of ${count(total(flow.counts))}</span>` },
    { name: 'failed', label: 'Failed', align: 'end', cell: (flow) => (flow.counts.failed ? html`<span class="bad">${count(flow.counts.failed)}</span>` : html`<span class="faint">0</span>`) },
    { name: 'took', label: 'Took', align: 'end', cell: (flow) => html`<${Took} flow=${flow} />` },
    { name: 'when', label: 'Created', align: 'end', cell: (flow) => html`<${Time} at=${flow.created_at} />` },
  ]} />`;
}

/** A workflow in which only held jobs are left waits for somebody. */
export function FlowStatus({ flow }) {
  const known = STATUSES.includes(flow.status) ? flow.status : 'running';
  const isHeld = known === 'running' && flow.counts.failed > 0 && finishedOf(flow.counts) + (flow.counts.blocked || 0) === total(flow.counts);
  return isHeld ? html`<span title="A job has failed, and others wait for somebody to decide"><${StatusBadge} status="blocked" /></span>` : html`<${StatusBadge} status=${known} />`;
}
