/** Small pictures drawn by hand: a line of counts, and a histogram. */
import { html } from '../lib.js';
import { count, duration } from '../format.js';

/** `values`: numbers from old to new. `label` says in words what it shows. */
export function Sparkline({ values, label, tone = 'accent', width = 120, height = 26, bars = false }) {
  const list = values && values.length ? values.map(Number) : [0];
  const top = Math.max(1, ...list);
  const step = width / Math.max(1, list.length - (bars ? 0 : 1));
  const y = (value) => height - 1.5 - (value / top) * (height - 4);
  const shape = bars ? '' : list.map((value, index) => `${index ? 'L' : 'M'}${(index * step).toFixed(1)} ${y(value).toFixed(1)}`).join('');
  return html`<svg class=${`spark spark-${tone}`} viewBox=${`0 0 ${width} ${height}`} width=${width} height=${height} preserveAspectRatio="none" role="img" aria-label=${label}>
    <path class="spark-base" d=${`M0 ${height - 1}H${width}`} />
    ${bars ? list.map((value, index) => value > 0 && html`<rect key=${index} class="spark-bar" x=${(index * step + 0.5).toFixed(1)} width=${Math.max(1, step - 1).toFixed(1)}
        y=${y(value).toFixed(1)} height=${(height - 1 - y(value)).toFixed(1)} rx="0.8" />`)
    : html`<path class="spark-area" d=${`${shape}L${width} ${height}L0 ${height}Z`} /><path class="spark-line" d=${shape} />`}</svg>`;
}

/** `buckets`: [{from, to, count}], in seconds. */
export function Histogram({ buckets, label, height = 120 }) {
  const list = (buckets || []).filter((one) => one.count > 0);
  if (!list.length) return html`<p class="faint">Nothing was measured.</p>`;
  const first = buckets.indexOf(list[0]);
  const shown = buckets.slice(first, buckets.indexOf(list.at(-1)) + 1);
  const top = Math.max(...shown.map((one) => one.count));
  const total = shown.reduce((sum, one) => sum + one.count, 0);
  return html`<figure class="histogram"><div class="histogram-bars" style=${{ height: `${height}px` }} role="img"
      aria-label=${`${label}: ${count(total)} from ${duration(shown[0].from)} to ${duration(shown.at(-1).to)}`}>
    ${shown.map((one) => html`<span key=${one.from} title=${`${duration(one.from)} – ${duration(one.to)}: ${count(one.count)}`}>
      <i style=${{ height: `${Math.max(one.count ? 2 : 0, (100 * one.count) / top)}%` }}></i></span>`)}</div>
    <figcaption><span>${duration(shown[0].from)}</span><span>${duration(shown.at(-1).to)}</span></figcaption></figure>`;
}
