/** Ctrl-K: pages, actions, tasks, queues, and any job by its id. */
import { html, signal, useEffect, useMemo, useRef, useState } from './lib.js';
import { get } from './api.js';
import { go } from './router.js';
import { PAGES } from './pages.js';
import { can, logout } from './session.js';
import { setTheme } from './theme.js';
import { setZone } from './zone.js';
import { togglePause } from './live.js';
import { openNewJob } from './components/NewJob.js';
import { openShortcuts } from './components/Shortcuts.js';
import { Dialog } from './components/Dialog.js';
import { Icon } from './components/icons.js';
import { Text } from './components/Text.js';

const open = signal(false);
export const openPalette = () => { open.value = true; };
const ID = /^[0-9a-f]{8}-?[0-9a-f-]{3,28}$/i;

function commands() {
  const pages = PAGES.filter((page) => page.nav).map((page) => ({ icon: page.nav, label: page.title, hint: page.key && `g ${page.key}`, run: () => go(page.path) }));
  const states = ['failed', 'running', 'retrying', 'pending'].map((status) => ({ icon: status, label: `Jobs: ${status}`, run: () => go(`/jobs?status=${status}`) }));
  return [
    ...pages, ...states,
    can('jobs.enqueue') && { icon: 'plus', label: 'New job', hint: 'n', run: () => openNewJob() },
    { icon: 'moon', label: 'Theme: dark', run: () => setTheme('dark') },
    { icon: 'sun', label: 'Theme: light', run: () => setTheme('light') },
    { icon: 'auto', label: 'Theme: as the system', run: () => setTheme('auto') },
    { icon: 'schedules', label: 'Times: local', run: () => setZone('local') },
    { icon: 'schedules', label: 'Times: UTC', run: () => setZone('UTC') },
    { icon: 'pause', label: 'Pause or resume live updates', run: togglePause },
    { icon: 'keyboard', label: 'Keyboard shortcuts', hint: '?', run: openShortcuts },
    { icon: 'logout', label: 'Log out', run: logout },
  ].filter(Boolean);
}

function named({ tasks, queues }) {
  return [
    ...tasks.flatMap((task) => [
      { icon: 'tasks', label: `Jobs of ${task.name}`, run: () => go(`/jobs?q=${encodeURIComponent(`type:${task.name}`)}`) },
      can('jobs.enqueue') && task.registered && { icon: 'plus', label: `New job: ${task.name}`, run: () => openNewJob({ type: task.name }) },
    ]),
    ...queues.map((queue) => ({ icon: 'queues', label: `Queue ${queue.name}`, run: () => go(`/jobs?q=${encodeURIComponent(`queue:${queue.name}`)}`) })),
  ].filter(Boolean);
}

/** All words have to occur; a match at the beginning comes first. */
export function find(list, text) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  return list
    .map((one) => ({ one, label: one.label.toLowerCase() }))
    .filter(({ label }) => words.every((word) => label.includes(word)))
    .sort((a, b) => Number(b.label.startsWith(words[0] || '')) - Number(a.label.startsWith(words[0] || '')))
    .map(({ one }) => one);
}

function search(text) {
  const typed = text.trim();
  const extra = [];
  if (ID.test(typed)) extra.push({ icon: 'right', label: `Open job ${typed}`, run: () => go(`/jobs/${encodeURIComponent(typed)}`) });
  if (typed) extra.push({ icon: 'search', label: `Search jobs for “${typed}”`, run: () => go(`/jobs?q=${encodeURIComponent(typed)}`) });
  return extra;
}

export function Palette() {
  return open.value && html`<${Box} />`;
}

function Box() {
  const [text, setText] = useState('');
  const [at, setAt] = useState(0);
  const [known, setKnown] = useState({ tasks: [], queues: [] });
  const list = useRef();
  useEffect(() => {
    Promise.all([get('/tasks').catch(() => ({ tasks: [] })), get('/queues').catch(() => ({ queues: [] }))])
      .then(([{ tasks }, { queues }]) => setKnown({ tasks, queues }));
  }, []);
  const entries = useMemo(() => [...find([...commands(), ...named(known)], text).slice(0, 40), ...search(text)], [text, known]);
  const chosen = Math.min(at, entries.length - 1);
  const close = () => { open.value = false; };
  const run = (entry) => { close(); if (entry) setTimeout(entry.run, 0); };
  const keys = (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) {
      event.preventDefault();
      setAt((chosen + step + entries.length) % entries.length);
    } else if (event.key === 'Enter') {
      event.preventDefault();
      run(entries[chosen]);
    }
  };
  useEffect(() => {
    const active = list.current.querySelector('[aria-selected=true]');
    if (active) active.scrollIntoView({ block: 'nearest' });
  }, [chosen]);
  return html`<${Dialog} title="Command palette" onClose=${close} plain wide><div class="palette">
    <label class="palette-input"><${Icon} name="search" /><span class="sr">Command</span>
      <input autofocus role="combobox" aria-expanded="true" aria-controls="palette-list" aria-activedescendant=${`palette-${chosen}`} autocomplete="off" spellcheck="false"
        placeholder="A page, a task, a queue, a job's id …" value=${text} onInput=${(event) => { setText(event.target.value); setAt(0); }} onKeyDown=${keys} /></label>
    <ul id="palette-list" role="listbox" aria-label="Commands" ref=${list}>${entries.map((entry, index) => html`
      <li key=${entry.label} id=${`palette-${index}`} role="option" aria-selected=${index === chosen} onClick=${() => run(entry)} onMouseMove=${() => setAt(index)}>
        <${Icon} name=${entry.icon} size=${15} /><span class="clip"><${Text} value=${entry.label} /></span>${entry.hint && html`<kbd>${entry.hint}</kbd>`}</li>`)}</ul></div><//>`;
}
