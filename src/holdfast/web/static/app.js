/** Where it begins: the session, then the page of the address, inside the layout. */
import { html, render, signal, effect, useEffect, useErrorBoundary } from './lib.js';
import { during, settle } from './idle.js';
import './tail.js';
import { session, trouble, restore, can } from './session.js';
import { route, match, go } from './router.js';
import { bind } from './keys.js';
import { PAGES } from './pages.js';
import { Layout } from './components/Layout.js';
import { Shortcuts, openShortcuts } from './components/Shortcuts.js';
import { openNewJob } from './components/NewJob.js';
import { Palette, openPalette } from './palette.js';
import { EmptyState, ErrorState } from './components/basics.js';
import Login from './pages/login.js';

/** Modules of pages that came: path -> component. */
const loaded = signal(new Map());
const broken = signal(null);

function bring(page) {
  if (loaded.peek().has(page.path)) return;
  broken.value = null;
  during(page.load()).then(
    (module) => { loaded.value = new Map([...loaded.peek(), [page.path, module.default]]); },
    () => { broken.value = { title: 'The page could not be loaded', detail: 'The server cannot be reached, or was updated. Load the page again.' }; },
  );
}

function Page() {
  const { path } = route.value;
  const page = PAGES.find((one) => match(one.path, path));
  useEffect(() => { if (page) bring(page); }, [page]);
  useEffect(() => { document.title = `${page ? page.title : 'Not found'} · ${session.peek().title || 'Holdfast'}`; }, [page]);
  if (!page) return html`<h1 class="sr">Not found</h1><${EmptyState} icon="search" title="There is no such page"><p>The address names nothing here.</p><//>`;
  const View = loaded.value.get(page.path);
  if (broken.value && !View) return html`<${ErrorState} error=${broken.value} retry=${() => location.reload()} />`;
  if (!View) return html`<h1 class="sr">${page.title}</h1>`;
  return html`<${Guard} key=${path}><${View} ...${match(page.path, path)} /><//>`;
}

/** A page that breaks does not take the navigation with it. */
function Guard({ children }) {
  const [problem, reset] = useErrorBoundary((error) => console.error(error));
  if (problem) return html`<h1 class="sr">Error</h1><${ErrorState} error=${{ title: 'This page broke', detail: String(problem.message || problem) }} retry=${reset} />`;
  return children;
}

function App() {
  useEffect(settle);
  if (trouble.value) return html`<main class="alone"><h1 class="sr">Holdfast</h1><${ErrorState} error=${trouble.value} retry=${restore} /></main>`;
  if (session.value === undefined) return html`<main class="boot" aria-busy="true"><h1 class="sr">Holdfast</h1></main>`;
  if (session.value === null) return html`<${Login} />`;
  return html`<${Layout}><${Page} /><//><${Palette} /><${Shortcuts} />`;
}

const known = () => Boolean(session.peek());
bind('mod+k', () => known() && openPalette(), 'Search or jump to');
bind('?', () => known() && openShortcuts(), 'This list');
bind('n', () => known() && can('jobs.enqueue') && openNewJob(), 'New job');
bind('/', () => (document.querySelector('[data-query]') || { focus: () => go('/jobs') }).focus(), 'Search jobs');
for (const page of PAGES.filter((one) => one.key)) bind(`g ${page.key}`, () => go(page.path), page.title, 'Go to');

effect(() => { route.value; settle(); });

/** After a change of page the keyboard begins at its top, and screen readers hear its name. */
let before = route.peek().path;
effect(() => {
  const { path } = route.value;
  if (path === before) return;
  before = path;
  requestAnimationFrame(() => { const main = document.getElementById('main'); if (main) main.focus({ preventScroll: true }); });
});

const place = document.getElementById('app');
place.replaceChildren();
render(html`<${App} />`, place);
restore().then(settle);
