/** What is around every page: navigation, the state of the live stream, theme and session. */
import { html, useEffect, useState } from '../lib.js';
import { route, href, match } from '../router.js';
import { PAGES, GROUPS } from '../pages.js';
import { session, logout, can } from '../session.js';
import * as live from '../live.js';
import { choice, nextTheme } from '../theme.js';
import { zone, nextZone } from '../zone.js';
import { openPalette } from '../palette.js';
import { openShortcuts } from './Shortcuts.js';
import { openNewJob, newJob, NewJob } from './NewJob.js';
import { Icon } from './icons.js';
import { IconButton } from './basics.js';
import { Toasts } from './Toast.js';
import { Confirm } from './Dialog.js';
import { Text } from './Text.js';
import { visible } from '../format.js';
import { Operations } from './Operations.js';

const here = (path) => {
  const page = PAGES.find((one) => match(one.path, route.value.path));
  return page && (page.path === path || page.under === path);
};

function Nav({ onPick }) {
  return html`<nav class="nav" aria-label="Pages">${GROUPS.map(([group, paths]) => {
    const pages = paths.map((path) => PAGES.find((one) => one.path === path)).filter(Boolean);
    return pages.length > 0 && html`<div class="nav-group" key=${group}><p class="nav-title">${group}</p>
      <ul>${pages.map((page) => html`<li key=${page.path}><a href=${href(page.path)} aria-current=${here(page.path) ? 'page' : undefined} onClick=${onPick}
          title=${page.title}><${Icon} name=${page.nav} /><span>${page.title}</span></a></li>`)}</ul></div>`;
  })}</nav>`;
}

const LIVE = {
  live: ['Live', 'Changes are shown as they happen. Click to pause.'],
  polling: ['Polling', 'There is no live stream: the page looks every five seconds. Click to pause.'],
  paused: ['Paused', 'The page does not change by itself. Click to go on.'],
  hidden: ['Hidden', 'The tab is hidden.'],
  off: ['Off', 'No live stream.'],
};

export function LiveSign() {
  const state = live.state.value;
  const [word, what] = LIVE[state];
  return html`<button type="button" class=${`live live-${state}`} onClick=${live.togglePause} title=${what} aria-pressed=${live.paused.value} aria-label=${`Live updates: ${word}`}>
    <i></i><span>${word}</span></button>`;
}

function Tools() {
  const theme = choice.value;
  return html`<div class="tools">
    <${LiveSign} />
    <button type="button" class="zone wide-only" onClick=${nextZone} title="Which clock the pages show: yours, or UTC" aria-label=${`Times: ${zone.value}`}>${zone.value === 'UTC' ? 'UTC' : 'Local'}</button>
    <${IconButton} icon=${{ auto: 'auto', light: 'sun', dark: 'moon' }[theme]} label=${`Theme: ${theme}`} onClick=${nextTheme} />
    <${IconButton} icon="keyboard" label="Keyboard shortcuts" onClick=${openShortcuts} class="wide-only" />
    ${['token', 'session'].includes(session.value.auth || session.value.via) && html`<${IconButton} icon="logout" label="Log out" onClick=${logout} />`}
  </div>`;
}

export function Layout({ children }) {
  const [open, setOpen] = useState(false);
  const path = route.value.path;
  useEffect(() => setOpen(false), [path]);
  const { title, version, who, role, read_only: readOnly } = session.value;
  return html`<a class="skip" href="#main">Skip to the page</a>
    <div class=${`shell ${open ? 'nav-open' : ''}`}>
      <header class="side">
        <div class="side-top"><a class="brand" href=${href('/')} title="Overview"><img src=${new URL('../logo.svg', import.meta.url).href} alt="" width="26" height="26" /><span>${title ? html`<${Text} value=${title} />` : 'Holdfast'}</span></a>
          <button type="button" class="icon-button nav-button" aria-label="Pages" aria-expanded=${open} onClick=${() => setOpen(!open)}><${Icon} name=${open ? 'close' : 'menu'} /></button></div>
        <${Nav} onPick=${() => setOpen(false)} />
        <div class="side-foot"><span class="who" title=${visible(`${who} · ${role}`)}><${Text} value=${who} /><small>${readOnly ? 'read only' : role}</small></span><small class="version">v${version}</small></div>
      </header>
      <div class="content">
        <div class="topbar">
          <button type="button" class="seek" onClick=${() => openPalette()}><${Icon} name="search" size=${14} /><span>Search or jump to …</span><kbd>Ctrl K</kbd></button>
          ${can('jobs.enqueue') && html`<button type="button" class="button button-primary new-job" aria-label="New job" onClick=${() => openNewJob()}><${Icon} name="plus" size=${14} /><span>New job</span></button>`}
          <${Tools} />
        </div>
        <main id="main" tabindex="-1">${children}</main>
      </div>
    </div>
    ${newJob.value && html`<${NewJob} ...${newJob.value} />`}
    <${Operations} /><${Confirm} /><${Toasts} />`;
}
