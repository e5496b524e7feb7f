/** What a page shows of the API: fetched, kept while it is fetched again, and followed live. */
import { useEffect, useRef, useState } from './lib.js';
import { get, Problem } from './api.js';
import { listen, paused } from './live.js';

const KEPT = 40;
const kept = new Map(); // what pages showed last, so that going back shows it at once

export function keep(key, value) {
  kept.delete(key);
  kept.set(key, value);
  if (kept.size > KEPT) kept.delete(kept.keys().next().value);
}
export const recall = (key) => kept.get(key);
export const forgetAll = () => kept.clear();

/**
 * `key`: the path and query; null asks for nothing. Options:
 * `follow(event)` says whether an event concerns it (default: none does); `every`: seconds between looks;
 * `read`: another way to fetch; `gap`: the least milliseconds between two fetches by events.
 * Gives {data, error, loading, reload, set}. `data` stays while it is fetched again or fails.
 */
export function useResource(key, { follow, every, read = get, gap = 1000 } = {}) {
  const [, redraw] = useState(0);
  const box = useRef(null);
  if (!box.current || box.current.key !== key) {
    if (box.current) box.current.stop();
    box.current = new Fetcher(key, read, gap, () => redraw((turn) => turn + 1));
  }
  const fetcher = box.current;
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

class Fetcher {
  constructor(key, read, gap, redraw) {
    Object.assign(this, { key, read, gap, redraw, error: null, abort: null, timer: null, last: 0, cost: 0 });
    this.data = key === null ? undefined : recall(key);
    this.running = false;
    this.stopped = false;
    this.reload = () => this.load();
  }

  get loading() { return this.data === undefined && !this.error && this.key !== null; }

  start() {
    this.stopped = false;
    if (this.key !== null && !this.running) this.load();
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

  /** Replaces what is shown, for example with an action's answer. */
  set(data) {
    this.data = data;
    keep(this.key, data);
    if (!this.stopped) this.redraw();
  }

  hear(events) {
    const concerned = events.some((one) => one.event === 'refresh' || (this.follow && this.follow(one)));
    if (concerned) this.soon();
  }

  /** Now, or when a slow server has had its rest. */
  soon() {
    if (this.timer || this.stopped || this.key === null) return;
    const rest = this.last + Math.max(this.gap, 3 * this.cost) - performance.now();
    this.timer = setTimeout(() => { this.timer = null; this.load(); }, Math.max(0, rest));
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
