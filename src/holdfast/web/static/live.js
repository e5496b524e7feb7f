/**
 * One stream of events for the visible tab: a glance, which tells a few of each kind a second and costs
 * busy workers nothing. Events are hints: pages fetch again what they show, also when more is not told.
 * A hidden tab has no stream and costs nothing; shown again, it fetches all. Where a stream cannot
 * be had, pages are told to look every five seconds.
 */
import { signal, effect } from './lib.js';
import { apiUrl } from './api.js';

const NAMES = ['enqueued', 'started', 'progress', 'complete', 'retrying', 'failed', 'cancelled', 'snoozed', 'released', 'rescued']
  .map((name) => `job:${name}`);
const GAP = 250;
const POLL = 5000;

/** "live", "polling", "paused" (by the user), "hidden" or "off". */
export const state = signal('off');
export const paused = signal(false);

const listeners = new Map();
let source = null;
let position = '';
let waiting = [];
let timer = null;
let poll = null;
let wanted = false;

/**
 * Calls back with a list of events, at most every 250 ms; "refresh" means: fetch all. `hush`: what the
 * last ones have led to need not be done any more, since nobody looks; who looks again fetches all.
 */
export function listen(callback, hush = () => {}) {
  listeners.set(callback, hush);
  return () => listeners.delete(callback);
}

function hint(event) {
  waiting.push(event);
  if (!timer) timer = setTimeout(flush, GAP);
}

function flush() {
  timer = null;
  const events = waiting;
  waiting = [];
  for (const callback of [...listeners.keys()]) callback(events);
}

export const refresh = () => hint({ event: 'refresh', data: {} });

function open() {
  if (source) return;
  // A new EventSource knows no Last-Event-ID; what was missed is fetched anyway.
  source = new EventSource(apiUrl('/events', { glance: true, ...(position && { after: position }) }));
  source.onopen = () => { state.value = 'live'; stopPolling(); };
  source.onerror = () => {
    if (source && source.readyState === EventSource.CLOSED) {
      source = null;
      startPolling();
    }
  };
  for (const name of NAMES) source.addEventListener(name, receive);
  source.addEventListener('gone', refresh);
  // It comes at every beginning, and when something may not have been told: what pages show is fetched.
  source.addEventListener('hello', refresh);
}

function receive(message) {
  if (message.lastEventId) position = message.lastEventId;
  try {
    const value = JSON.parse(message.data);
    hint({ event: message.type, data: value.data && value.event ? value.data : value, position: Number(message.lastEventId) || 0 });
  } catch {
    refresh();
  }
}

function startPolling() {
  state.value = 'polling';
  if (!poll) poll = setInterval(() => { refresh(); if (!source) retry(); }, POLL);
}

let patience = 0;
/** Now and then while polling: perhaps there is a stream again. */
function retry() {
  patience += 1;
  if (patience % 6 === 0) open();
}

function stopPolling() {
  clearInterval(poll);
  poll = null;
  patience = 0;
}

function close(why) {
  if (source) source.close();
  source = null;
  stopPolling();
  clearTimeout(timer);
  timer = null;
  waiting = [];
  for (const hush of [...listeners.values()]) hush();
  state.value = why;
}

function decide() {
  if (!wanted) close('off');
  else if (document.hidden) close('hidden');
  else if (paused.peek()) close('paused');
  else if (!source && !poll) {
    const again = state.peek() === 'hidden' || state.peek() === 'paused';
    state.value = 'polling';
    open();
    if (again) refresh();
  }
}

/** From when somebody is logged in until they are not. */
export function start() { wanted = true; decide(); }
export function stop() { wanted = false; position = ''; decide(); }

export function togglePause() { paused.value = !paused.peek(); }

effect(() => { paused.value; decide(); });
document.addEventListener('visibilitychange', decide);
addEventListener('pagehide', () => close('hidden'));
addEventListener('pageshow', decide);
