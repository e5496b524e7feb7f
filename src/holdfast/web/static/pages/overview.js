/** How it goes: in numbers, over time, and what needs somebody. */
import { html, useMemo } from '../lib.js';
import { useResource } from '../resource.js';
import { param, setParams, href } from '../router.js';
import { can } from '../session.js';
import { cappedShort, capped, count, duration, percent, plural, rate } from '../format.js';
import { Panel, PageHead, Segments, Loaded, EmptyState } from '../components/basics.js';
import { Chart } from '../components/Chart.js';
import { Sparkline } from '../components/Sparkline.js';
import { Table } from '../components/Table.js';
import { Icon } from '../components/icons.js';
import { Text } from '../components/Text.js';
import { Time } from '../components/Time.js';

export const RANGES = [['15m', '15m'], ['1h', '1h'], ['6h', '6h'], ['24h', '24h']];
const POINTS = 180;

/** Fewer points: neighbours are added up, and their times averaged by what was measured. */
export function condense(series, most = POINTS) {
  const size = Math.ceil(series.length / most) || 1;
  const groups = [];
  for (let index = 0; index < series.length; index += size) groups.push(series.slice(index, index + size));
  const sum = (name) => groups.map((group) => group.reduce((total, point) => total + point[name], 0) / group.length);
  const mean = (name) => groups.map((group) => {
    const measured = group.filter((point) => point[name] !== null);
    return measured.length ? measured.reduce((total, point) => total + point[name], 0) / measured.length : null;
  });
  return {
    times: groups.map((group) => Date.parse(group[0].at) / 1000),
    completed: sum('completed'), failed: sum('failed'), retried: sum('retried'), wait: mean('wait'), run: mean('run'),
  };
}

export default function Overview() {
  const range = param('range', '1h');
  const stats = useResource(`/stats?window=${range}`, { every: 5, follow: ({ event }) => event === 'job:failed' || event === 'job:complete', gap: 3000 });
  const report = useResource('/health', { every: 10 });
  const queues = useResource('/queues', { every: 5 });
  const errors = useResource(can('jobs.read') ? '/errors' : null, { every: 15, follow: ({ event }) => event === 'job:failed', gap: 5000 });
  return html`<${PageHead} title="Overview"><${Segments} label="Range" value=${range} options=${RANGES} onChange=${(value) => setParams({ range: value === '1h' ? '' : value })} /><//>
    <div class="overview">
      <${Strip} stats=${stats.data} health=${report.data} range=${range} />
      <div class="stack">
        <${Panel} title="Throughput" note="finished by the minute"><${Loaded} from=${stats} lines=${8}>${(data) => html`<${Throughput} series=${data.series} range=${range} />`}<//><//>
        <${Panel} title="Queues" flush actions=${html`<a href=${href('/queues')}>All queues</a>`}><${Loaded} from=${queues}>${(data) => html`<${Queues} queues=${data.queues} />`}<//><//>
        <${Panel} title="Tasks" note=${`in the last ${range}`} flush><${Loaded} from=${stats}>${(data) => html`<${Tasks} figures=${data.by_task} />`}<//><//>
      </div>
      <div class="stack">
        <${Panel} title="Needs attention"><${Loaded} from=${report}>${(data) => html`<${Attention} report=${data} />`}<//><//>
        <${Panel} title="Wait and run" note=${`in the last ${range}`}><${Loaded} from=${stats}>${(data) => html`<${Times} data=${data} />`}<//><//>
        ${can('jobs.read') && html`<${Panel} title="Newest errors" flush actions=${html`<a href=${href('/errors')}>All errors</a>`}><${Loaded} from=${errors}>${(data) => html`<${Newest} groups=${data.groups} />`}<//><//>`}
      </div>
    </div>`;
}

function Stat({ label, value, note, tone = '', to }) {
  const inside = html`<span class="stat-label">${label}</span><span class="stat-value">${value}</span><span class="stat-note">${note || ' '}</span>`;
  return to ? html`<a class=${`stat ${tone && `stat-${tone}`}`} href=${href(to)}>${inside}</a>` : html`<div class=${`stat ${tone && `stat-${tone}`}`}>${inside}</div>`;
}

function Strip({ stats, health: report, range }) {
  if (!stats) return html`<section class="strip" aria-label="Now" aria-busy="true">${Array.from({ length: 6 }, (_, index) => html`<${Stat} key=${index} label=" " value="–" />`)}</section>`;
  const { jobs, cap, figures, workers, oldest_pending: oldest } = stats;
  const problems = report ? report.problems.length : 0;
  const failed = figures.failed;
  return html`<section class="strip" aria-label="Now">
    <${Stat} label="Health" value=${!report ? '–' : report.ok ? 'Good' : plural(problems, 'problem')} tone=${report && !report.ok ? 'bad' : ''} note=${standing(report)} />
    <${Stat} label="Waiting" value=${cappedShort(jobs.pending, cap)} note=${oldest === null ? 'nothing waits' : `oldest ${duration(oldest)}`} tone=${oldest > 300 ? 'warn' : ''} to="/jobs?status=pending" />
    <${Stat} label="Running" value=${cappedShort(jobs.running, cap)} note=${plural(workers, 'worker')} to="/jobs?status=running" />
    <${Stat} label=${`Failed, ${range}`} value=${count(failed)} note=${`${percent(figures.failure_rate)} of finished`} tone=${failed ? 'bad' : ''} to="/jobs?status=failed" />
    <${Stat} label="Throughput" value=${rate(figures.per_minute)} note=${`${count(figures.finished)} in ${range}`} />
    <${Stat} label="Retrying" value=${cappedShort(jobs.retrying, cap)} note=${`${count(figures.retried)} retried in ${range}`} to="/jobs?status=retrying" />
  </section>`;
}

/** What stands under the verdict. */
function standing(report) {
  if (!report) return '';
  if (report.warnings.length) return plural(report.warnings.length, 'warning');
  return report.ok ? 'all checks pass' : `${report.checks.filter((check) => check.ok).length} of ${report.checks.length} checks pass`;
}

const rounded = (value) => (value >= 10 || value === Math.round(value) ? count(Math.round(value)) : value.toFixed(1));

function Throughput({ series, range }) {
  const points = useMemo(() => condense(series), [series]);
  const sum = (name) => series.reduce((total, point) => total + point[name], 0);
  return html`<${Chart} times=${points.times} height=${220} sync="overview" format=${rounded} minTop=${5}
    label=${`In the last ${range}: ${count(sum('completed'))} completed, ${count(sum('failed'))} failed, ${count(sum('retried'))} retried`}
    series=${[
      { label: 'Completed', values: points.completed, token: 'accent', kind: 'area' },
      { label: 'Retried', values: points.retried, token: 'warn', kind: 'line' },
      { label: 'Failed', values: points.failed, token: 'bad', kind: 'bars' },
    ]} />`;
}

function Times({ data }) {
  const points = useMemo(() => condense(data.series), [data.series]);
  const { wait, run } = data.figures;
  return html`<div class="quantiles"><span class="faint"></span><span class="faint">p50</span><span class="faint">p95</span>
      <span>Wait</span><b>${duration(wait.p50)}</b><b>${duration(wait.p95)}</b>
      <span>Run</span><b>${duration(run.p50)}</b><b>${duration(run.p95)}</b></div>
    <${Chart} times=${points.times} height=${130} sync="overview" format=${duration} minTop=${0.01}
      label=${`Average wait ${duration(wait.average)}, average run ${duration(run.average)}`}
      series=${[{ label: 'Wait', values: points.wait, token: 'violet' }, { label: 'Run', values: points.run, token: 'info' }]} />`;
}

function Attention({ report }) {
  const items = [...report.problems.map((text) => ['bad', 'warning', text]), ...report.warnings.map((text) => ['warn', 'info', text])];
  if (!items.length) return html`<p class="calm"><${Icon} name="check" />All is well: work is being done as it comes.</p>`;
  return html`<ul class="attention">${items.map(([tone, icon, text]) => html`<li key=${text}><span class=${tone}><${Icon} name=${icon} /></span><span><span class="sr">${tone === 'bad' ? 'Problem: ' : 'Warning: '}</span><${Text} value=${text} /></span></li>`)}</ul>`;
}

function Queues({ queues }) {
  return html`<${Table} label="Queues" rows=${queues} rowKey=${(row) => row.name} empty=${html`<${EmptyState} title="No queue yet"><p>The first job makes the first queue.</p><//>`} columns=${[
    { name: 'name', label: 'Queue', cell: (row) => html`<a href=${href(`/jobs?q=${encodeURIComponent(`queue:${row.name}`)}`)}><${Text} value=${row.name} /></a>${row.paused_at && html` <span class="chip warn">paused</span>`}` },
    { name: 'series', label: 'Last hour', cell: (row) => html`<${Sparkline} values=${(row.series || []).map((point) => point.completed + point.failed)} label=${`${count(row.figures ? row.figures.finished : 0)} finished`} />` },
    { name: 'pending', label: 'Waiting', align: 'end', cell: (row) => capped(row.pending, row.cap) },
    { name: 'running', label: 'Running', align: 'end', cell: (row) => count(row.running) },
    { name: 'oldest', label: 'Oldest', align: 'end', cell: (row) => (row.oldest === null ? html`<span class="faint">–</span>` : html`<span class=${row.oldest > 300 ? 'warn' : ''}>${duration(row.oldest)}</span>`) },
    { name: 'drain', label: 'Drained in', align: 'end', cell: (row) => (row.drain === null ? html`<span class="faint">–</span>` : duration(row.drain)) },
  ]} />`;
}

function Tasks({ figures }) {
  const rows = Object.entries(figures).map(([name, one]) => ({ name, ...one })).sort((a, b) => b.finished - a.finished).slice(0, 12);
  return html`<${Table} label="Tasks" rows=${rows} rowKey=${(row) => row.name} empty=${html`<${EmptyState} title="Nothing was done yet" />`} columns=${[
    { name: 'name', label: 'Task', class: 'clip', cell: (row) => html`<a href=${href(`/jobs?q=${encodeURIComponent(`type:${row.name}`)}`)}><${Text} value=${row.name} /></a>` },
    { name: 'finished', label: 'Finished', align: 'end', cell: (row) => count(row.finished) },
    { name: 'failures', label: 'Failed', align: 'end', cell: (row) => (row.failed ? html`<span class="bad">${percent(row.failure_rate)}</span>` : html`<span class="faint">0 %</span>`) },
    { name: 'wait', label: 'Wait p95', align: 'end', cell: (row) => duration(row.wait.p95) },
    { name: 'run50', label: 'Run p50', align: 'end', cell: (row) => duration(row.run.p50) },
    { name: 'run95', label: 'Run p95', align: 'end', cell: (row) => duration(row.run.p95) },
  ]} />`;
}

function Newest({ groups }) {
  const newest = [...groups].sort((a, b) => (a.last_at < b.last_at ? 1 : -1)).slice(0, 5);
  if (!newest.length) return html`<${EmptyState} icon="check" title="No errors" />`;
  return html`<div class="error-rows">${newest.map((group) => html`<a class="error-row" key=${group.id} href=${href(`/errors?group=${encodeURIComponent(group.id)}`)}>
    <span class="clip"><strong><${Text} value=${group.exception} /></strong> <span class="faint"><${Text} value=${group.message} /></span></span>
    <${Sparkline} values=${group.sparkline} label=${`${group.count} times`} tone="bad" bars width=${64} height=${20} />
    <small><span class="num">${count(group.count)}</span> × · <${Time} at=${group.last_at} /></small></a>`)}</div>`;
}
