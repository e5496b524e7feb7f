/** One workflow: who waits for whom, what took how long, and what can be done about it. */
import { html, useEffect, useMemo } from '../lib.js';
import { part } from '../api.js';
import { useResource } from '../resource.js';
import { href, param, setParams } from '../router.js';
import { cancelWorkflow, releaseJob, retryWorkflow } from '../doing.js';
import { can } from '../session.js';
import { critical } from '../layers.js';
import { count, plural } from '../format.js';
import { Button, CopyButton, EmptyState, ErrorState, Panel, Segments, Skeleton } from '../components/basics.js';
import { Graph } from '../components/Graph.js';
import { Waterfall } from '../components/Waterfall.js';
import { STATUSES, StatusBadge } from '../components/Status.js';
import { Icon } from '../components/icons.js';
import { Text } from '../components/Text.js';
import { Time } from '../components/Time.js';
import { FlowStatus, Pieces, Took, finishedOf, total } from './workflows.js';

const MANY = 400;

/** Jobs that wait for somebody, because one that they wait for did not end well. */
export function heldJobs(jobs, edges) {
  const status = new Map(jobs.map((job) => [job.id, job.status]));
  const held = new Set(edges.filter((edge) => edge.policy === 'hold' && edge.outcome !== 'completed' && ['failed', 'cancelled'].includes(status.get(edge.parent))).map((edge) => edge.child));
  return jobs.filter((job) => job.status === 'blocked' && held.has(job.id));
}

export default function WorkflowPage({ id }) {
  const found = useResource(`/workflows/${part(id)}`, { every: 10, follow: ({ event }) => event !== 'job:progress', gap: 800 });
  const name = found.data && found.data.workflow.name;
  useEffect(() => { if (name) document.title = `${name} · Holdfast`; }, [name]);
  if (!found.data) {
    if (found.error && found.error.status === 404) return html`<h1 class="sr">Workflow</h1><${EmptyState} icon="search" title="There is no such workflow"><p><${Text} value=${found.error.detail} /></p><a href=${href('/workflows')}>All workflows</a><//>`;
    return html`<h1 class="sr">Workflow</h1>${found.error ? html`<${ErrorState} error=${found.error} retry=${found.reload} />` : html`<${Panel}><${Skeleton} lines=${10} /><//>`}`;
  }
  const { workflow, jobs, edges } = found.data;
  const held = heldJobs(jobs, edges);
  return html`<${Head} flow=${workflow} />
    ${found.error && html`<${ErrorState} error=${found.error} retry=${found.reload} compact />`}
    <div class="stack"><${Summary} flow=${workflow} />
      ${held.length > 0 && html`<${Held} jobs=${held} />`}
      <${View} flow=${workflow} jobs=${jobs} edges=${edges} /></div>`;
}

function Head({ flow }) {
  const { counts } = flow;
  const operate = can('workflows.operate');
  return html`<header class="page-head"><div class="page-title"><div class="job-head"><h1><${Text} value=${flow.name} /></h1><${FlowStatus} flow=${flow} /></div>
      <div class="job-id">${flow.id}<${CopyButton} text=${flow.id} label="Copy the id" /></div></div>
    <div class="page-actions">${operate && counts.failed + counts.cancelled > 0 && html`<${Button} icon="retry" kind="primary" onClick=${() => retryWorkflow(flow)}>Retry what failed<//>`}
      ${operate && finishedOf(counts) < total(counts) && html`<${Button} icon="cancel" onClick=${() => cancelWorkflow(flow)}>Cancel<//>`}</div></header>`;
}

function Summary({ flow }) {
  const all = total(flow.counts);
  return html`<${Panel}><div class="flow-summary"><div class="row-between"><strong>${count(finishedOf(flow.counts))} of ${plural(all, 'job')} finished</strong>
      <span class="faint">created <${Time} at=${flow.created_at} /> · ${flow.finished_at ? 'took' : 'for'} <${Took} flow=${flow} /></span></div>
    <${Pieces} counts=${flow.counts} label="Progress" />
    <p class="row">${STATUSES.filter((status) => flow.counts[status]).map((status) => html`<span class="row" key=${status}><${StatusBadge} status=${status} quiet /><span class="num">${count(flow.counts[status])}</span></span>`)}</p></div><//>`;
}

function Held({ jobs }) {
  return html`<div class="notice notice-warn"><${Icon} name="blocked" /><div><strong>${plural(jobs.length, 'job')} held</strong>
    <p>What they wait for did not end well. Retry that, or let them run without it.</p>
    <ul class="held">${jobs.map((job) => html`<li key=${job.id}><a href=${href(`/jobs/${part(job.id)}`)}><${Text} value=${job.node || job.type} /></a>
      ${can('jobs.operate') && html`<${Button} class="button-small" icon="play" onClick=${() => releaseJob(job)}>Release<//>`}</li>`)}</ul></div></div>`;
}

function View({ flow, jobs, edges }) {
  const view = param('view') === 'waterfall' ? 'waterfall' : 'graph';
  const shown = jobs.slice(0, MANY);
  const path = useMemo(() => critical(jobs, edges), [jobs, edges]);
  const ids = new Set(shown.map((job) => job.id));
  return html`<${Panel} title=${view === 'graph' ? 'Graph' : 'Waterfall'} note=${jobs.length > MANY ? `the first ${MANY} of ${plural(jobs.length, 'job')}` : plural(jobs.length, 'job')}
      actions=${html`<${Segments} label="View" value=${view} options=${[['graph', 'Graph'], ['waterfall', 'Waterfall']]} onChange=${(value) => setParams({ view: value === 'graph' ? '' : value })} />`}>
    ${view === 'graph' ? html`<${Graph} jobs=${shown} edges=${edges.filter((edge) => ids.has(edge.child) && ids.has(edge.parent))} path=${path} />` : html`<${Waterfall} flow=${flow} jobs=${shown} path=${path} />`}<//>`;
}
