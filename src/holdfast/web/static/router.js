/** The address is the state: which page, which filters, which tab, which range. */
import { signal } from './lib.js';
import { base, search } from './api.js';

function read() {
  const path = location.pathname.slice(base.length) || '/';
  return { path: path.length > 1 ? path.replace(/\/+$/, '') : path, params: new URLSearchParams(location.search) };
}

export const route = signal(read());
/** The address of one of our pages. */
export const href = (path) => base + path;

/** Goes to a page of ours; `replace` leaves no step for the back button. */
export function go(path, { replace = false } = {}) {
  const target = href(path);
  if (target === location.pathname + location.search) return;
  if (!replace) history.replaceState({ ...history.state, scroll: scrollY }, '');
  history[replace ? 'replaceState' : 'pushState']({ scroll: 0 }, '', target);
  const before = route.peek().path;
  route.value = read();
  if (route.peek().path !== before) scrollTo(0, 0);
}

/** Changes some parameters of this page's address and leaves the others. */
export function setParams(changes, { replace = true } = {}) {
  const { path, params } = route.peek();
  const next = {};
  for (const name of new Set(params.keys())) next[name] = params.getAll(name);
  const query = search({ ...next, ...changes });
  go(path + (query ? `?${query}` : ''), { replace });
}

/** One parameter of the address, or what stands for its absence. */
export const param = (name, otherwise = '') => route.value.params.get(name) ?? otherwise;

addEventListener('popstate', (event) => {
  route.value = read();
  const scroll = event.state && event.state.scroll;
  // The page is drawn from what it showed last; then its height is there again.
  if (scroll) requestAnimationFrame(() => requestAnimationFrame(() => scrollTo(0, scroll)));
});

/** Plain links go through the router; the browser keeps those with keys, targets and downloads. */
document.addEventListener('click', (event) => {
  if (event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  const link = event.target.closest && event.target.closest('a[href]');
  if (!link || link.target || link.hasAttribute('download') || link.origin !== location.origin) return;
  const inside = link.pathname === base || link.pathname.startsWith(`${base}/`);
  if (!inside || link.pathname.startsWith(`${base}/api/`) || link.hash) return;
  event.preventDefault();
  go(link.pathname.slice(base.length) + link.search);
});

/** The values of a pattern's names ("/jobs/:id"), or null where the path is another. */
export function match(pattern, path) {
  const wanted = pattern.split('/');
  const given = path.split('/');
  if (wanted.length !== given.length) return null;
  const values = {};
  for (let index = 0; index < wanted.length; index += 1) {
    if (wanted[index].startsWith(':')) {
      if (!given[index]) return null;
      try {
        values[wanted[index].slice(1)] = decodeURIComponent(given[index]);
      } catch {
        return null;
      }
    } else if (wanted[index] !== given[index]) {
      return null;
    }
  }
  return values;
}
