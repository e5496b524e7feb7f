/** What can be done with a job, when, and who may. */
import { post, patch, del, root, part } from './api.js';
import { stringify } from './json.js';
import { can } from './session.js';
import { refresh } from './live.js';
import { ask } from './components/Dialog.js';
import { toast, fail } from './components/Toast.js';
import { openNewJob } from './components/NewJob.js';
import { FINISHED } from './components/Status.js';
import { shortId } from './format.js';

const nameOf = (job) => `${job.type} …${shortId(job.id)}`;

async function act(run, words, done) {
  try {
    const job = await run();
    toast(words);
    if (done) done(job);
    else refresh();
  } catch (problem) {
    fail(problem);
  }
}

export async function edit(job, done) {
  const values = await ask({
    title: 'Edit the job', text: nameOf(job), action: 'Save',
    fields: [
      { name: 'priority', label: 'Priority', value: String(job.priority), hint: 'A higher number runs first.' },
      { name: 'queue', label: 'Queue', value: job.queue },
      { name: 'when', label: 'When', value: '', placeholder: job.run_at, hint: 'A delay such as 10m, or a time such as 2026-11-30T09:00:00Z. Empty: as it is.' },
    ],
  });
  if (!values) return;
  const change = {};
  if (values.priority.trim() !== String(job.priority)) change.priority = /^-?\d+$/.test(values.priority.trim()) ? Number(values.priority) : values.priority;
  if (values.queue.trim() !== job.queue) change.queue = values.queue.trim();
  if (values.when.trim()) change[/^\d{4}-/.test(values.when.trim()) ? 'run_at' : 'delay'] = values.when.trim();
  if (Object.keys(change).length) await act(() => patch(`/jobs/${part(job.id)}`, change), 'Saved', done);
}

async function remove(job, gone) {
  const sure = await ask({ title: 'Delete this job?', text: nameOf(job), note: 'Its arguments, result and attempts are gone for good.', action: 'Delete', danger: true });
  if (sure) await act(() => post(`/jobs/${part(job.id)}/delete`), 'Deleted', gone);
}

async function cancel(job, done) {
  const sure = job.status !== 'running' || await ask({ title: 'Cancel a running job?', text: nameOf(job), note: 'It is asked to stop; how soon it does is up to its task.', action: 'Cancel the job', danger: true });
  if (sure) await act(() => del(`/jobs/${part(job.id)}`), 'Cancelled', done);
}

/**
 * The actions that make sense now: [{name, label, icon, run, danger}]. `done` gets the job as it is then;
 * `gone` is called when it was deleted.
 */
export function actionsOf(job, { done, gone } = {}) {
  const finished = FINISHED.includes(job.status);
  const path = `/jobs/${part(job.id)}`;
  const operate = can('jobs.operate');
  const list = [];
  if (operate && (finished || job.status === 'retrying')) list.push({ name: 'retry', label: 'Retry', icon: 'retry', run: () => act(() => post(`${path}/retry`), 'It will run again', done) });
  if (can('workflows.operate') && job.workflow_id && job.status === 'blocked') list.push({ name: 'release', label: 'Release', icon: 'play', run: () => act(() => post(`${path}/release`), 'Released', done) });
  if (operate && ['scheduled', 'retrying'].includes(job.status)) list.push({ name: 'run', label: 'Run now', icon: 'play', run: () => act(() => post(`${path}/run`), 'It is due now', done) });
  if (operate && !finished) list.push({ name: 'cancel', label: 'Cancel', icon: 'cancel', run: () => cancel(job, done) });
  if (operate && !finished && job.status !== 'running') list.push({ name: 'edit', label: 'Edit', icon: 'edit', run: () => edit(job, done) });
  if (can('jobs.delete') && job.status !== 'running') list.push({ name: 'delete', label: 'Delete', icon: 'trash', danger: true, run: () => remove(job, gone) });
  return list;
}

/** Needs the whole job: its payload is the beginning of the new one's. */
export const duplicate = (job) => openNewJob({ type: job.type, payload: job.payload, of: job.id });

const shell = (text) => `'${text.replaceAll("'", "'\\''")}'`;

/** The same job, enqueued in three other ways. */
export function snippets(job) {
  const body = { type: job.type, payload: job.payload, queue: job.queue, priority: job.priority };
  const call = `app.enqueue(${JSON.stringify(job.type)}, ${python(job.payload)}, queue=${JSON.stringify(job.queue)}, priority=${job.priority})`;
  return {
    curl: `curl -X POST ${location.origin}${root}/jobs -H 'Authorization: Bearer TOKEN' -H 'Content-Type: application/json' -d ${shell(stringify(body))}`,
    python: call,
    command: `holdfast enqueue MODULE:app ${shell(job.type)} --payload ${shell(stringify(job.payload))} --queue ${shell(job.queue)} --priority ${job.priority}`,
  };
}

function python(value) {
  if (value === null || value === undefined) return 'None';
  if (value === true) return 'True';
  if (value === false) return 'False';
  if (Array.isArray(value)) return `[${value.map(python).join(', ')}]`;
  if (typeof value === 'object') return `{${Object.entries(value).map(([key, one]) => `${JSON.stringify(key)}: ${python(one)}`).join(', ')}}`;
  return typeof value === 'string' ? JSON.stringify(value) : String(value);
}
