/** The charts of a queue or a task: what it did, and how long that took. */
import { html, useMemo } from '../lib.js';
import { count, duration } from '../format.js';
import { condense } from '../pages/overview.js';
import { Chart } from './Chart.js';

const rounded = (value) => (value >= 10 || value === Math.round(value) ? count(Math.round(value)) : value.toFixed(1));

export function Done({ series, range, sync }) {
  const points = useMemo(() => condense(series), [series]);
  const sum = (name) => count(series.reduce((total, point) => total + point[name], 0));
  return html`<${Chart} times=${points.times} height=${200} sync=${sync} format=${rounded} minTop=${5}
    label=${`In the last ${range}: ${sum('completed')} completed, ${sum('failed')} failed, ${sum('retried')} retried`}
    series=${[
      { label: 'Completed', values: points.completed, token: 'accent', kind: 'area' },
      { label: 'Retried', values: points.retried, token: 'warn', kind: 'line' },
      { label: 'Failed', values: points.failed, token: 'bad', kind: 'bars' },
    ]} />`;
}

export function Took({ series, figures, sync }) {
  const points = useMemo(() => condense(series), [series]);
  const { wait, run } = figures;
  return html`<div class="quantiles"><span class="faint"></span><span class="faint">p50</span><span class="faint">p95</span>
      <span>Wait</span><b>${duration(wait.p50)}</b><b>${duration(wait.p95)}</b>
      <span>Run</span><b>${duration(run.p50)}</b><b>${duration(run.p95)}</b></div>
    <${Chart} times=${points.times} height=${120} sync=${sync} format=${duration} minTop=${0.01}
      label=${`Average wait ${duration(wait.average)}, average run ${duration(run.average)}`}
      series=${[{ label: 'Wait', values: points.wait, token: 'violet' }, { label: 'Run', values: points.run, token: 'info' }]} />`;
}

/** What was finished in each minute, for a sparkline. */
export const finished = (series) => (series || []).map((point) => point.completed + point.failed + point.cancelled);
