/**
 * The rows of the jobs page. The first page is fetched again when something happens, and laid over what
 * is shown: rows keep their place, what is new waits above while somebody is busy with the list.
 */
import { useEffect } from './lib.js';
import { apiUrl, get } from './api.js';
import { keep, recall, Refresher, useKeyed } from './resource.js';
import { listen } from './live.js';

export const PAGE = 50;
const STATUS_OF = { 'job:started': 'running', 'job:complete': 'completed', 'job:failed': 'failed', 'job:retrying': 'retrying', 'job:cancelled': 'cancelled', 'job:enqueued': null };

const MOST = 1000; // rows that are held, also of a list that somebody has made longer

/**
 * What the first page says, over what was there; `held`: new rows are counted and not shown; `grown`:
 * somebody has loaded more, so rows below the page stay, where nothing lies between them and it.
 */
export function overlay(rows, page, held, grown = true) {
  const fresh = new Map(page.jobs.map((job) => [job.id, job]));
  const old = new Map(rows.map((job) => [job.id, job]));
  const last = page.jobs.at(-1);
  const edge = page.next === null ? rows.length : rows.findIndex((job) => last && job.id === last.id) + 1;
  if (held) {
    const kept = rows.map((job, index) => fresh.get(job.id) || (index < edge ? { ...job, moved: true } : job));
    return { rows: kept, waiting: page.jobs.filter((job) => !old.has(job.id)).length };
  }
  const below = grown && edge > 0 ? rows.slice(edge).filter((job) => !fresh.has(job.id)) : [];
  return { rows: [...page.jobs, ...(below.length < MOST ? below : [])], waiting: 0 };
}

/** One row after an event about it. */
export function touched(job, { event, data }) {
  const status = data.status || STATUS_OF[event] || job.status;
  const next = { ...job, status };
  if (data.progress !== undefined) next.progress = data.progress;
  if (data.message !== undefined) next.message = data.message;
  if (data.error !== undefined) next.error = data.error;
  if (data.run_at !== undefined) next.run_at = data.run_at;
  if (data.attempts !== undefined) next.attempts = data.attempts;
  return next;
}

export function useJobs(params, isHeld) {
  const key = apiUrl('/jobs', { ...params, limit: PAGE });
  const list = useKeyed(key, (redraw) => new JobList(key, params, redraw));
  list.isHeld = isHeld;
  useEffect(() => {
    list.stopped = false;
    list.load();
    const quiet = listen((events) => list.hear(events), () => list.hush());
    return () => { quiet(); list.stop(); };
  }, [list]);
  return list;
}

class JobList extends Refresher {
  constructor(key, params, redraw) {
    super(key, 700, 4, redraw);
    Object.assign(this, { params, more: false, waiting: 0 });
    const kept = recall(key) || {};
    this.rows = kept.rows;
    this.answer = kept.answer;
    this.next = kept.next ?? null;
    this.grown = Boolean(kept.grown);
    this.reload = () => this.load({ reveal: true });
  }

  changed() {
    keep(this.key, { rows: this.rows, answer: this.answer, next: this.next, grown: this.grown });
    if (!this.stopped) this.redraw();
  }

  /** The first page. `reveal` shows what is new also while somebody is busy. */
  async load({ reveal = false } = {}) {
    if (this.abort) this.abort.abort();
    const abort = this.abort = new AbortController();
    const begun = performance.now();
    try {
      const page = await get('/jobs', { ...this.params, limit: PAGE }, { signal: abort.signal });
      if (abort.signal.aborted) return;
      this.error = null;
      this.answer = page;
      const held = !reveal && this.rows && this.rows.length > 0 && this.isHeld();
      const result = this.rows ? overlay(this.rows, page, held, this.grown) : { rows: page.jobs, waiting: 0 };
      this.rows = result.rows;
      this.waiting = result.waiting;
      if (!held && this.rows.length <= page.jobs.length) this.grown = false;
      if (!this.grown) this.next = page.next;
    } catch (problem) {
      if (abort.signal.aborted) return;
      this.error = problem;
    } finally {
      this.last = performance.now();
      this.cost = this.last - begun;
      if (this.abort === abort) this.abort = null;
    }
    this.changed();
  }

  async loadMore() {
    if (this.more || !this.next) return;
    this.more = true;
    this.redraw();
    try {
      const page = await get('/jobs', { ...this.params, limit: PAGE, after: this.next });
      const known = new Set(this.rows.map((job) => job.id));
      this.rows = [...this.rows, ...page.jobs.filter((job) => !known.has(job.id))];
      this.next = page.next;
      this.grown = true;
    } catch (problem) {
      this.error = problem;
    }
    this.more = false;
    this.changed();
  }

  hear(events) {
    if (!this.rows) return;
    const about = new Map();
    for (const one of events) if (one.data.job_id) about.set(one.data.job_id, [...(about.get(one.data.job_id) || []), one]);
    if (this.rows.some((job) => about.has(job.id))) {
      this.rows = this.rows.map((job) => (about.get(job.id) || []).reduce(touched, job));
      this.changed();
    }
    if (events.some((one) => one.event !== 'job:progress')) this.soon();
  }

  /** Puts an action's answer in its row's place. */
  replace(job) {
    this.rows = this.rows.map((one) => (one.id === job.id ? { ...one, ...job } : one));
    this.changed();
  }
}
