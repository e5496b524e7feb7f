/** Who is looking, and what they may do. */
import { signal } from './lib.js';
import { get, post, del, onLost, Problem } from './api.js';
import * as live from './live.js';

/** undefined: not known yet; null: not logged in; else the answer of GET /session. */
export const session = signal(undefined);
/** Why the session could not be read, where it is not that a login is needed. */
export const trouble = signal(null);

export const can = (permission) => Boolean(session.value && session.value.permissions.includes(permission));

function enter(answer) {
  session.value = answer;
  trouble.value = null;
  if (can('events.read')) live.start();
}

/** What the command put behind the address's `#` when it opened this page. It is taken out at once. */
function invitation() {
  const found = /^#token=([\w-]+)$/.exec(location.hash);
  if (found) history.replaceState(history.state, '', location.pathname + location.search);
  return found && found[1];
}

export async function restore() {
  const secret = invitation();
  try {
    if (secret) return await login(secret);
  } catch { /* it works once: who has come back may still be logged in */ }
  try {
    enter(await get('/session'));
  } catch (problem) {
    if (problem instanceof Problem && problem.status === 401) leave();
    else trouble.value = problem;
  }
}

export async function login(token) {
  enter(await post('/session', { token }));
}

export async function logout() {
  try {
    await del('/session');
  } finally {
    leave();
  }
}

function leave() {
  live.stop();
  session.value = null;
}

onLost(leave);
