/** The last events, kept while the page lives, so that whoever looks finds something. */
import { signal } from './lib.js';
import { listen } from './live.js';
import { present } from './clock.js';

export const MOST = 500;
/** Newest first: {serial, at, event, data, position}. */
export const tail = signal([]);
let serial = 0;

/** What came, before what was there; of progress only the newest of a job is kept. */
export function joined(rows, events, at, most = MOST) {
  const fresh = [];
  const moving = new Set();
  for (const one of [...events].reverse()) {
    const isProgress = one.event === 'job:progress';
    if (isProgress && moving.has(one.data.job_id)) continue;
    if (isProgress) moving.add(one.data.job_id);
    fresh.push({ ...one, at });
  }
  const old = moving.size ? rows.filter((row) => row.event !== 'job:progress' || !moving.has(row.data.job_id)) : rows;
  return [...fresh, ...old].slice(0, most);
}

listen((events) => {
  const heard = events.filter((one) => one.event.startsWith('job:')).map((one) => ({ ...one, serial: ++serial }));
  if (heard.length) tail.value = joined(tail.peek(), heard, new Date(present()).toISOString());
});
