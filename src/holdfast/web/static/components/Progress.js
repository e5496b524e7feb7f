/** How far a running job is, and how long it will still take if it goes on like this. */
import { html, useComputed } from '../lib.js';
import { now } from '../clock.js';
import { duration } from '../format.js';
import { Text } from './Text.js';

const portion = (value) => Math.min(100, Math.max(0, Number(value) || 0));

/** Seconds until the end by the speed so far; null where that would be a guess. */
export function remaining(progress, startedAt, at) {
  const done = portion(progress);
  const spent = (at - Date.parse(startedAt)) / 1000;
  if (!startedAt || done < 2 || done >= 100 || spent < 1) return null;
  return (spent * (100 - done)) / done;
}

export function Bar({ value, label, tone = 'accent' }) {
  const done = portion(value);
  return html`<span class=${`bar bar-${tone}`} role="progressbar" aria-label=${label} aria-valuemin="0" aria-valuemax="100" aria-valuenow=${Math.round(done)}>
    <span class="bar-fill" style=${{ width: `${done}%` }}></span></span>`;
}

export function Progress({ job, wide = false }) {
  if (job.progress === null || job.progress === undefined) return null;
  return html`<span class=${wide ? 'progress progress-wide' : 'progress'}>
    <span class="progress-line"><${Bar} value=${job.progress} label="Progress" />
      <span class="num">${Math.floor(portion(job.progress))} %</span></span>
    ${(wide || job.message) && html`<span class="progress-words"><span class="clip"><${Text} value=${job.message || ''} /></span>
      ${job.status === 'running' && html`<${Eta} key=${job.started_at + job.progress} job=${job} />`}</span>`}
  </span>`;
}

function Eta({ job }) {
  const words = useComputed(() => {
    const left = remaining(job.progress, job.started_at, now.value);
    return left === null ? '' : `${duration(left)} left`;
  });
  return html`<span class="faint nowrap">${words}</span>`;
}
