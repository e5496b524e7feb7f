/** Data of the API that a page shows: fetched, shown while it is fetched again, and followed live. */
import { useEffect, useRef, useState } from './lib.js';
import { get, Problem } from './api.js';
import { listen, paused } from './live.js';

const KEPT = 40;
const kept = new Map(); // the last data of pages, which going back shows immediately

export function keep(key, value) {
  kept.delete(key);
  kept.set(key, value);
  if (kept.size > KEPT) kept.delete(kept.keys().next().value);
}
export const recall = (key) => kept.get(key);
export const forgetAll = () => kept.clear();

/** Gives the object that `make(redraw)` returns for this key; a new key stops the old object. */
export function useKeyed(key, make) {
  const [, redraw] = useState(0);
  const box = useRef(null);
  if (!box.current || box.current.key !== key) {
    if (box.current) box.current.stop();
    box.current = make(() => redraw((turn) => turn + 1));
  }
  return box.current;
}

/** When to fetch again after an event: `gap` milliseconds after the last fetch, and `rest` times as long as it took. */
export class Refresher {
  constructor(key, gap, rest, redraw) {
    Object.assign(this, { key, gap, rest, redraw, error: null, abort: null, timer: null, last: 0, cost: 0, stopped: false });
  }

  soon() {
    if (this.timer || this.stopped || this.key === null) return;
    const wait = this.last + Math.max(this.gap, this.rest * this.cost) - performance.now();
    this.timer = setTimeout(() => { this.timer = null; this.load(); }, Math.max(0, wait));
  }

  hush() {
    clearTimeout(this.timer);
    this.timer = null;
  }

  stop() {
    this.stopped = true;
    this.hush();
    if (this.abort) this.abort.abort();
  }
}

/**
 * `key`: the path and query; null asks for nothing. Options:
 * `follow(event)` says whether an event concerns it (default: none does); `every`: seconds between looks;
 * `read`: another way to fetch; `gap`: the least milliseconds between two fetches by events.
 * Gives {data, error, loading, reload, set}. `data` stays while it is fetched again or fails.
 */
export function useResource(key, { follow, every, read = get, gap = 1000 } = {}) {
  const fetcher = useKeyed(key, (redraw) => new Fetcher(key, read, gap, redraw));
  fetcher.follow = follow;
  useEffect(() => {
    fetcher.start();
    const quiet = listen((events) => fetcher.hear(events), () => fetcher.hush());
    const timer = every && setInterval(() => {
      if (!document.hidden && !paused.peek()) fetcher.soon();
    }, every * 1000);
    return () => { quiet(); clearInterval(timer); fetcher.stop(); };
  }, [fetcher, every]);
  return fetcher;
}

class Fetcher extends Refresher {
  constructor(key, read, gap, redraw) {
    super(key, gap, 3, redraw);
    this.read = read;
    this.data = key === null ? undefined : recall(key);
    this.running = false;
    this.reload = () => this.load();
  }

  get loading() { return this.data === undefined && !this.error && this.key !== null; }

  start() {
    this.stopped = false;
    if (this.key !== null && !this.running) this.load();
  }

  /** Replaces the data, for example with the response to an action. */
  set(data) {
    this.data = data;
    keep(this.key, data);
    if (!this.stopped) this.redraw();
  }

  hear(events) {
    const concerned = events.some((one) => one.event === 'refresh' || (this.follow && this.follow(one)));
    if (concerned) this.soon();
  }

  async load() {
    if (this.abort) this.abort.abort();
    const abort = this.abort = new AbortController();
    const begun = performance.now();
    this.running = true;
    try {
      const data = await this.read(this.key, undefined, { signal: abort.signal });
      if (abort.signal.aborted) return;
      this.error = null;
      this.set(data);
    } catch (problem) {
      if (abort.signal.aborted || this.stopped) return;
      this.error = problem instanceof Problem ? problem : new Problem({ title: 'Error', status: 0, detail: String(problem.message || problem) });
      this.redraw();
    } finally {
      if (this.abort === abort) { this.running = false; this.abort = null; }
      this.last = performance.now();
      this.cost = this.last - begun;
    }
  }
}
