/** The moments of a job's life, and how long it took from one to the next. */
import { html } from '../lib.js';
import { now } from '../clock.js';
import { duration, secondsBetween } from '../format.js';
import { Time } from './Time.js';

/** [{name, at, tone, ahead}]: what happened, then what is to come. */
export function moments(job) {
  const list = [{ name: 'Created', at: job.created_at, tone: 'pending' }];
  const isLater = secondsBetween(job.created_at, job.run_at) > 1;
  const ran = job.started_at && job.status !== 'pending';
  if (isLater && (!job.started_at || job.run_at <= job.started_at)) list.push({ name: 'Due', at: job.run_at, tone: 'scheduled', ahead: !ran && Date.parse(job.run_at) > now.peek() });
  if (job.started_at) list.push({ name: job.attempts > 1 ? `Started, attempt ${job.attempts}` : 'Started', at: job.started_at, tone: 'running' });
  if (job.completed_at) list.push({ name: job.status[0].toUpperCase() + job.status.slice(1), at: job.completed_at, tone: job.status });
  else if (job.status === 'retrying') list.push({ name: 'Tried again', at: job.run_at, tone: 'retrying', ahead: true });
  else if (job.status === 'running') list.push({ name: 'Running', at: null, tone: 'running', ahead: true });
  else if (job.status === 'pending') list.push({ name: 'Waits for a worker', at: null, tone: 'pending', ahead: true });
  else if (job.status === 'blocked') list.push({ name: 'Blocked', at: null, tone: 'blocked', ahead: true });
  return list;
}

export function Timeline({ job }) {
  const list = moments(job);
  return html`<ol class="timeline">${list.map((one, index) => {
    const next = list[index + 1];
    return html`<li key=${one.name} class=${`tone-${one.tone} ${one.ahead ? 'ahead' : ''} ${next && next.ahead ? 'ahead-next' : ''}`}>
      ${next && html`<span class="span"><b>${spanned(one, next)}</b></span>`}
      <strong>${one.name}</strong>${one.at && html`<span class="num faint"><${Time} at=${one.at} exact /></span>`}</li>`;
  })}</ol>`;
}

function spanned(one, next) {
  const end = next.at ? Date.parse(next.at) : now.value;
  return duration(Math.max(0, (end - Date.parse(one.at)) / 1000));
}
