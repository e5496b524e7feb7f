/** When each job of a workflow waited and ran, on one axis of time. */
import { html } from '../lib.js';
import { now } from '../clock.js';
import { href } from '../router.js';
import { duration, visible } from '../format.js';
import { StatusBadge } from './Status.js';
import { Text } from './Text.js';

const STEPS = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 43200, 86400, 172800, 604800];

/** Few round moments, in seconds from the begin. */
export function ticks(length, most = 6) {
  const step = STEPS.find((one) => length / one <= most) || length;
  return Array.from({ length: Math.floor(length / step) + 1 }, (_, index) => index * step);
}

/** {ready, started, ended} in milliseconds; null where that has not come. A job was ready when it could have run. */
export function spans(job, at) {
  const time = (moment) => (moment ? Date.parse(moment) : null);
  const started = time(job.started_at);
  const waits = ['pending', 'retrying', 'running'].includes(job.status) || started !== null;
  const due = Math.min(time(job.run_at), started ?? at);
  const ended = time(job.completed_at) ?? (job.status === 'running' ? at : null);
  return { ready: waits ? due : null, started, ended: started === null ? null : ended ?? time(job.updated_at) };
}

export function Waterfall({ jobs, flow, path = [] }) {
  const open = !flow.finished_at && jobs.some((job) => ['running', 'pending', 'retrying'].includes(job.status));
  // The page's clock moves by the second: what runs has not ended before what has.
  const at = Math.max(open ? now.value : now.peek(), ...jobs.map((job) => Date.parse(job.completed_at || job.started_at || 0) || 0));
  const start = Date.parse(flow.created_at);
  const rows = jobs.map((job) => ({ job, ...spans(job, at) }));
  const end = Math.max(start + 1, ...rows.map((row) => Math.max(row.ended ?? 0, row.started ?? 0, row.ready && !row.started ? at : 0)));
  const sorted = [...rows].sort((a, b) => (a.ready ?? Infinity) - (b.ready ?? Infinity) || (a.started ?? Infinity) - (b.started ?? Infinity));
  const length = (end - start) / 1000;
  const left = (moment) => `${(100 * (moment - start)) / (end - start)}%`;
  const wide = (from, to) => `${(100 * Math.max(0, to - from)) / (end - start)}%`;
  return html`<div class="waterfall"><div class="waterfall-head" aria-hidden="true"><span></span><div>${ticks(length).map((one) => html`<i key=${one} style=${{ left: `${(100 * one) / length}%` }}><span>${one ? duration(one) : '0'}</span></i>`)}</div><span></span></div>
    <ol>${sorted.map(({ job, ready, started, ended }) => {
    const waited = ready !== null ? ((started ?? at) - ready) / 1000 : null;
    const took = started !== null && ended !== null ? (ended - started) / 1000 : null;
    const words = [waited !== null && waited > 0.0005 && `waited ${duration(waited)}`, took !== null && `ran ${duration(took)}`].filter(Boolean).join(', ') || job.status;
    return html`<li key=${job.id} class=${`tone-${job.status} ${path.includes(job.id) ? 'on-path' : ''}`}>
      <a class="waterfall-name" href=${href(`/jobs/${job.id}`)} title=${visible(job.node || job.type)}><${StatusBadge} status=${job.status} quiet /><span class="clip"><${Text} value=${job.node || job.type} /></span></a>
      <div class="waterfall-line" title=${visible(`${job.node || job.type}: ${words}`)}>
        ${ready !== null && html`<i class="wait" style=${{ left: left(ready), width: wide(ready, started ?? at) }}></i>`}
        ${started !== null && ended !== null && html`<i class="ran" style=${{ left: left(started), width: wide(started, ended) }}></i>`}</div>
      <span class="num faint">${took === null ? '' : duration(took)}<span class="sr"> ${words}</span></span></li>`;
  })}</ol>
    <p class="waterfall-legend faint"><i class="wait"></i>waited for a worker <i class="ran"></i>ran, in the colour of its status</p></div>`;
}
