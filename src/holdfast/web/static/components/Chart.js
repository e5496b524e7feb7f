/**
 * Time series by uPlot, in the theme's colours. `times`: seconds since 1970; `series`:
 * [{label, values, token, kind: "area"|"line"|"bars", format}]. Charts with one `sync` share their cursor.
 */
import { html, loadPlot, useEffect, useRef, useState } from '../lib.js';
import { dark, color } from '../theme.js';
import { zone } from '../zone.js';
import { during } from '../idle.js';
import { count, minute } from '../format.js';

export function Chart({ times, series, label, height = 190, sync, format = count, minTop = 1 }) {
  const box = useRef();
  const plot = useRef(null);
  const [at, setAt] = useState(null);
  const [ready, setReady] = useState(null);
  const data = [times, ...series.map((one) => one.values)];
  const shape = series.map((one) => one.label).join('|');

  useEffect(() => { during(loadPlot()).then((uPlot) => setReady(() => uPlot)); }, []);
  useEffect(() => {
    if (!ready) return undefined;
    const place = box.current;
    const made = new ready(options(ready, { series, height, sync, format, minTop, width: place.clientWidth, onCursor: setAt }), data, place);
    plot.current = made;
    const watch = new ResizeObserver(() => made.setSize({ width: place.clientWidth, height }));
    watch.observe(place);
    return () => { watch.disconnect(); made.destroy(); plot.current = null; };
  }, [ready, dark.value, zone.value, shape, height]);
  useEffect(() => { if (plot.current) plot.current.setData(data); }, [times, ...series.map((one) => one.values)]);

  return html`<figure class="chart"><${Legend} series=${series} times=${times} at=${at} format=${format} />
    <div class="chart-box" ref=${box} role="img" aria-label=${label} style=${{ minHeight: `${height}px` }}></div></figure>`;
}

function Legend({ series, times, at, format }) {
  const shown = at !== null && at < times.length;
  return html`<figcaption class="legend">${series.map((one) => html`<span key=${one.label}>
      <i class=${`legend-mark mark-${one.kind || 'line'}`} style=${{ color: `var(--${one.token})` }}></i>${one.label}
      ${shown && html` <b class="num">${one.values[at] === null ? '–' : (one.format || format)(one.values[at])}</b>`}</span>`)}
    <span class="legend-time num">${shown ? minute(times[at]) : ''}</span></figcaption>`;
}

function options(uPlot, { series, height, sync, format, minTop, width, onCursor }) {
  const ink = color('ink-3');
  const grid = { stroke: color('line'), width: 1 };
  const font = '11px system-ui, sans-serif';
  return {
    width, height, legend: { show: false }, padding: [8, 8, 0, 0],
    tzDate: (seconds) => (zone.peek() === 'UTC' ? uPlot.tzDate(new Date(seconds * 1000), 'Etc/UTC') : new Date(seconds * 1000)),
    cursor: { y: false, points: { size: 6 }, sync: sync ? { key: sync } : undefined, drag: { x: false, y: false } },
    scales: { y: { range: (_, low, high) => [0, Math.max(minTop, (high || 0) * 1.12)] } },
    axes: [
      { stroke: ink, font, grid: { show: false }, ticks: { show: false }, size: 24, space: 70, values: '{HH}:{mm}' },
      { stroke: ink, font, grid, ticks: { show: false }, size: 52, space: 36, values: (_, ticks) => ticks.map((tick) => format(tick)) },
    ],
    series: [{}, ...series.map((one) => drawn(uPlot, one))],
    hooks: { setCursor: [(plot) => onCursor(plot.cursor.idx ?? null)] },
  };
}

/** A line needs neighbours; without them there are dots. */
const isSparse = (plot, index) => plot.data[index].filter((value) => value !== null).length < 3;

function drawn(uPlot, { label, token, kind = 'line', dash }) {
  const stroke = color(token);
  if (kind === 'bars') {
    return { label, stroke, fill: stroke, width: 0, points: { show: false }, paths: uPlot.paths.bars({ size: [0.6, 14], radius: 0.15 }) };
  }
  return {
    label, stroke, width: 1.75, dash, points: { show: isSparse, size: 5, fill: stroke }, spanGaps: true,
    fill: kind === 'area' ? color(token, 0.16) : undefined, paths: uPlot.paths.spline(),
  };
}
