/** Bulk actions: asked for with their number, followed until they end. */
import { html, signal } from '../lib.js';
import { post, get, del } from '../api.js';
import { refresh } from '../live.js';
import { count, plural } from '../format.js';
import { ask } from './Dialog.js';
import { toast, fail } from './Toast.js';
import { Bar } from './Progress.js';
import { Button, IconButton } from './basics.js';
import { Text } from './Text.js';

const running = signal([]);
const WORDS = { retry: ['Retry', 'retried'], cancel: ['Cancel', 'cancelled'], delete: ['Delete', 'deleted'] };
const PAUSE = 300;

/**
 * Counts, asks, starts and follows. `what` is {ids} or {filter}; `name` says in words which jobs.
 * Resolves to true if it was started.
 */
export async function bulk(action, what, name) {
  const [verb] = WORDS[action];
  try {
    const { matched, capped } = await post('/bulk', { action, ...what, dry_run: true });
    if (!matched) {
      toast('No job matches.', { tone: 'bad' });
      return false;
    }
    const number = capped ? `more than ${count(matched)} jobs` : plural(matched, 'job');
    const sure = await ask({
      title: `${verb} ${number}?`, action: `${verb} ${number}`, danger: action !== 'retry',
      text: name, note: { retry: 'Those that cannot be retried are skipped, and counted.', cancel: 'Running jobs are asked to stop.', delete: 'Deleted jobs are gone for good.' }[action],
    });
    if (!sure) return false;
    follow(await post('/bulk', { action, ...what }), matched);
    return true;
  } catch (problem) {
    fail(problem);
    return false;
  }
}

function show(operation) {
  const rest = running.peek().filter((one) => one.id !== operation.id);
  running.value = [...rest, operation];
}

const hide = (id) => { running.value = running.peek().filter((one) => one.id !== id); };

async function follow(first, matched) {
  let operation = first;
  show({ ...operation, matched: operation.matched ?? matched });
  while (operation.state === 'running') {
    await new Promise((resolve) => setTimeout(resolve, PAUSE));
    try {
      operation = await get(`/bulk/${operation.id}`);
    } catch (problem) {
      hide(first.id);
      fail(problem);
      return;
    }
    show({ ...operation, matched: operation.matched ?? matched });
  }
  refresh();
  if (operation.state === 'done') setTimeout(() => hide(operation.id), 6000);
}

async function stop(operation) {
  try {
    await del(`/bulk/${operation.id}`);
  } catch (problem) {
    fail(problem);
  }
}

export function Operations() {
  return html`<div class="operations" aria-live="polite">${running.value.map((one) => html`<${Operation} key=${one.id} operation=${one} />`)}</div>`;
}

function Operation({ operation }) {
  const { action, state, seen, changed, skipped, matched, error } = operation;
  const [verb, done] = WORDS[action] || [action, 'changed'];
  const left = Object.entries(skipped || {}).filter(([, number]) => number);
  return html`<section class="operation" aria-label=${`${verb}: ${state}`}>
    <header><strong>${state === 'running' ? `${verb}: ${count(seen)} of ${matched ? count(matched) : '…'}` : `${count(changed)} ${done}${state === 'done' ? '' : ` – ${state}`}`}</strong>
      ${state === 'running' ? html`<${Button} onClick=${() => stop(operation)}>Stop<//>` : html`<${IconButton} icon="close" label="Dismiss" onClick=${() => hide(operation.id)} />`}</header>
    <${Bar} value=${state === 'running' ? (100 * seen) / Math.max(1, matched || seen) : 100} label=${`${verb} progress`} tone=${state === 'failed' ? 'bad' : 'accent'} />
    ${left.length > 0 && html`<p class="faint">${left.map(([why, number]) => `${count(number)} skipped: ${why}`).join(' · ')}</p>`}
    ${error && html`<p class="bad"><${Text} value=${error} /></p>`}</section>`;
}
