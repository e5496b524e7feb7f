/** The REST API: JSON in, JSON out; what goes wrong is a Problem. */
import { during } from './idle.js';
import { parse, stringify } from './json.js';
import { setSkew } from './clock.js';

export const base = document.querySelector('meta[name=holdfast-base]').content.replace(/\/+$/, '');
export const root = `${base}/api/v1`;

/** An answer that is not what was asked for, in the words of problem+json. */
export class Problem extends Error {
  constructor({ title, status, detail, errors }) {
    super(detail || title);
    this.title = title;
    this.status = status;
    this.detail = detail || '';
    this.errors = errors || [];
  }
}

let lost = () => {};
/** Who is called when the server no longer knows who we are. */
export function onLost(callback) { lost = callback; }

/** "a=1&b=2&b=3" of an object; lists repeat, empty values are left out. */
export function search(params = {}) {
  const pairs = new URLSearchParams();
  for (const [name, value] of Object.entries(params)) {
    for (const one of Array.isArray(value) ? value : [value]) {
      if (one !== undefined && one !== null && one !== '') pairs.append(name, String(one));
    }
  }
  return pairs.toString();
}

export function apiUrl(path, params) {
  const query = search(params);
  return root + path + (query ? (path.includes('?') ? '&' : '?') + query : '');
}

/** The parsed body of an answer; throws Problem. `at` is another root than the API's. */
export async function request(method, path, { body, params, signal, at } = {}) {
  const url = at === undefined ? apiUrl(path, params) : at + path;
  window.holdfastRequests += 1;
  return during(send(method, url, body, signal));
}

async function send(method, url, body, signal) {
  const headers = { Accept: 'application/json, application/problem+json' };
  if (method !== 'GET') headers['Content-Type'] = 'application/json';
  let answer;
  try {
    answer = await fetch(url, {
      method, headers, signal, credentials: 'same-origin', cache: 'no-store',
      body: method === 'GET' ? undefined : stringify(body === undefined ? {} : body),
    });
  } catch (problem) {
    if (problem.name === 'AbortError') throw problem;
    throw new Problem({ title: 'No connection', status: 0, detail: 'The server cannot be reached. The page tries again by itself.' });
  }
  setSkew(answer.headers.get('Date'));
  const text = await answer.text();
  const value = decode(text);
  if (answer.ok) return value;
  if (answer.status === 401 && !url.endsWith('/session')) lost();
  throw new Problem({
    title: answer.statusText || 'Error', status: answer.status,
    detail: answer.status >= 500 ? 'The server could not answer. Its log says why.' : '',
    ...(value && typeof value === 'object' ? value : {}),
  });
}

function decode(text) {
  if (!text) return null;
  try {
    return parse(text);
  } catch {
    return null;
  }
}

export const get = (path, params, options) => request('GET', path, { params, ...options });
export const post = (path, body, options) => request('POST', path, { body, ...options });
export const put = (path, body) => request('PUT', path, { body });
export const patch = (path, body) => request('PATCH', path, { body });
export const del = (path) => request('DELETE', path);
/** A part of a path. */
export const part = (name) => encodeURIComponent(name);
