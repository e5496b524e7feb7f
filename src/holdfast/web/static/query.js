/** The language of the query bar: what may be typed next. */
import { get } from './api.js';
import { STATUSES } from './components/Status.js';

export const QUALIFIERS = [
  ['type:', 'a task, or the beginning of its name'], ['status:', STATUSES.join(', ')], ['queue:', 'a queue'],
  ['error:', 'words of the error'], ['entity:', 'what it is about: movie:7'], ['key:', 'its key'], ['worker:', 'a worker'],
  ['id:', 'an id'], ['priority:', '5, >5, <0'], ['payload.', 'a value of the arguments: payload.user.id:7'],
  ['after:', '2026-11-01, or 1h'], ['before:', '2026-11-01, or 1h'],
];
const SPANS = ['15m', '1h', '6h', '24h', '7d'];

let names = null;
/** Names for completion, fetched once, when somebody first types. */
function known() {
  names = names || Promise.all([
    get('/tasks').then(({ tasks }) => tasks.map((one) => one.name), () => []),
    get('/queues').then(({ queues }) => queues.map((one) => one.name), () => []),
    get('/workers').then(({ workers }) => workers.map((one) => one.id), () => []),
  ]).then(([type, queue, worker]) => ({ type, queue, worker, status: STATUSES, after: SPANS, before: SPANS, priority: ['>0', '<0', '0'] }));
  return names;
}

/** The word around the caret: {from, to, text}. A quoted value is one word. */
export function wordAt(text, caret) {
  let from = 0;
  let quoted = false;
  for (let index = 0; index < caret; index += 1) {
    if (text[index] === '"') quoted = !quoted;
    else if (text[index] === ' ' && !quoted) from = index + 1;
  }
  const end = quoted ? -1 : text.indexOf(' ', caret);
  const to = end < 0 ? text.length : end;
  return { from, to, text: text.slice(from, to) };
}

const quote = (value) => (/[\s"]/.test(value) ? `"${value.replaceAll('"', '\\"')}"` : value);

/** What could stand for the word: [{insert, label, hint}]. */
export async function complete(word) {
  const colon = word.indexOf(':');
  if (colon < 0) {
    const typed = word.toLowerCase();
    return QUALIFIERS.filter(([name]) => name.startsWith(typed)).map(([name, hint]) => ({ insert: name, label: name, hint }));
  }
  const name = word.slice(0, colon);
  const typed = word.slice(colon + 1).replace(/^"/, '').toLowerCase();
  const values = (await known())[name] || [];
  return values.filter((value) => value.toLowerCase().includes(typed) && value.toLowerCase() !== typed).slice(0, 12)
    .map((value) => ({ insert: `${name}:${quote(value)} `, label: value, hint: name }));
}
