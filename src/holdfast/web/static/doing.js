/** What operators do with queues, schedules, workflows and limits: asked for, done, told. */
import { post, put, patch, del, part } from './api.js';
import { can } from './session.js';
import { refresh } from './live.js';
import { ask } from './components/Dialog.js';
import { toast, fail } from './components/Toast.js';
import { plural } from './format.js';

/** Runs a request, says how it went, and lets pages look again; the answer, or null. */
export async function act(run, words, done) {
  try {
    const answer = await run();
    toast(typeof words === 'function' ? words(answer) : words);
    if (done) done(answer);
    refresh();
    return answer;
  } catch (problem) {
    fail(problem);
    return null;
  }
}

/** {run_at} or {delay} of what somebody wrote. */
export const moment = (text) => (/^\d{4}-/.test(text) ? { run_at: text } : { delay: text });

const numbers = ({ concurrency, rate }) => ({
  concurrency: concurrency.trim() === '' ? null : /^\d+$/.test(concurrency.trim()) ? Number(concurrency) : concurrency,
  rate: rate.trim() || null,
});

async function askLimit(title, text, limit) {
  const values = await ask({
    title, text, action: 'Save',
    fields: [
      { name: 'concurrency', label: 'At most at once', value: limit.concurrency === null ? '' : String(limit.concurrency), hint: 'Empty: as many as there are workers for.' },
      { name: 'rate', label: 'Rate', value: limit.rate || '', placeholder: '100/m', hint: 'Starts in a time, such as 10/s or 100/m. Empty: no rate.' },
    ],
  });
  return values && numbers(values);
}

export async function limitQueue(queue) {
  const values = await askLimit('Limit the queue', queue.name, queue);
  if (values) await act(() => put(`/queues/${part(queue.name)}/limit`, values), 'Saved');
}

export async function limitTask(limit) {
  const values = await askLimit('Change the limit', limit.name, limit);
  if (values) await act(() => put(`/limits/${part(limit.name)}`, values), 'Saved');
}

export const resetLimit = (limit) => act(() => del(`/limits/${part(limit.name)}`), "The code's numbers hold again");

async function pauseFor(queue) {
  const values = await ask({
    title: 'Pause the queue', text: queue.name, action: 'Pause',
    fields: [{ name: 'when', label: 'Until', value: '30m', hint: 'A time from now such as 30m or 2h, or a moment such as 2026-11-30T09:00:00Z.' }],
  });
  if (!values) return;
  const when = values.when.trim();
  pause(queue, when ? (/^\d{4}-/.test(when) ? { until: when } : { for: when }) : {});
}

const pause = (queue, how) => act(() => post(`/queues/${part(queue.name)}/pause`, how), `${queue.name} is paused`);

async function purge(queue) {
  const sure = await ask({
    title: 'Purge the queue?', text: `Every job of ${queue.name} that waits is deleted.`, typed: queue.name, action: 'Purge', danger: true,
    note: 'Running and recurring jobs stay. The others are gone for good.',
  });
  if (sure) await act(() => post(`/queues/${part(queue.name)}/purge`, { confirm: queue.name }), ({ deleted }) => `${plural(deleted, 'job')} deleted`);
}

/** For a menu. */
export function queueActions(queue) {
  const operate = can('queues.operate');
  return [
    operate && queue.paused_at && { name: 'resume', label: 'Resume', icon: 'play', run: () => act(() => post(`/queues/${part(queue.name)}/resume`), `${queue.name} goes on`) },
    operate && { label: 'Pause until resumed', icon: 'pause', run: () => pause(queue, {}) },
    operate && { label: 'Pause for 10 minutes', icon: 'pause', run: () => pause(queue, { for: '10m' }) },
    operate && { label: 'Pause for 1 hour', icon: 'pause', run: () => pause(queue, { for: '1h' }) },
    operate && { label: 'Pause for …', icon: 'pause', run: () => pauseFor(queue) },
    can('limits.operate') && { label: 'Edit limit', icon: 'limits', run: () => limitQueue(queue) },
    can('queues.purge') && { label: 'Purge', icon: 'trash', danger: true, run: () => purge(queue) },
  ].filter(Boolean);
}

export const scheduleName = (job) => (job.key && job.key !== '@code' ? `${job.type} · ${job.key}` : job.type);

async function reschedule(job) {
  const values = await ask({
    title: 'Choose the next run', text: scheduleName(job), action: 'Save',
    fields: [{ name: 'when', label: 'When', value: '', placeholder: job.run_at, hint: 'A time from now such as 10m, or a moment such as 2026-11-30T09:00:00Z. Later runs follow the schedule.' }],
  });
  if (values && values.when.trim()) await act(() => patch(`/schedules/${part(job.id)}`, moment(values.when.trim())), 'The next run was moved');
}

export const enableSchedule = (job, on) => act(() => post(`/schedules/${part(job.id)}/${on ? 'enable' : 'disable'}`), on ? 'It runs again' : 'It is disabled');

export function scheduleActions(job) {
  if (!can('schedules.operate')) return [];
  return [
    { label: 'Run now', icon: 'play', run: () => act(() => post(`/schedules/${part(job.id)}/run`), 'It is due now') },
    { label: 'Choose next run', icon: 'edit', run: () => reschedule(job) },
  ];
}

export const retryWorkflow = (flow) => act(() => post(`/workflows/${part(flow.id)}/retry`), ({ changed }) => `${plural(changed, 'job')} will run again`);

export async function cancelWorkflow(flow) {
  const sure = await ask({ title: 'Cancel the workflow?', text: flow.name, note: 'What is not finished is cancelled; what runs is asked to stop.', action: 'Cancel the workflow', danger: true });
  if (sure) await act(() => post(`/workflows/${part(flow.id)}/cancel`), ({ changed }) => `${plural(changed, 'job')} cancelled`);
}

export const releaseJob = (job) => act(() => post(`/jobs/${part(job.id)}/release`), 'Released');
