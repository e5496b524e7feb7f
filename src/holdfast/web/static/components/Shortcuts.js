/** The list of keys. */
import { html, signal } from '../lib.js';
import { listed } from '../keys.js';
import { Dialog } from './Dialog.js';

const open = signal(false);
export const openShortcuts = () => { open.value = true; };

const mac = /Mac|iPhone|iPad/.test(navigator.platform);
const keyNames = (keys) => keys.split(' ').flatMap((one) => one.split('+')).map((one) => ({ mod: mac ? '⌘' : 'Ctrl' }[one] || (one.length === 1 && keys.startsWith('mod') ? one.toUpperCase() : one)));

export function Shortcuts() {
  if (!open.value) return null;
  const groups = Map.groupBy ? Map.groupBy(listed(), (one) => one.group) : new Map([['General', listed()]]);
  return html`<${Dialog} title="Keyboard shortcuts" onClose=${() => { open.value = false; }}>
    <div class="shortcuts">${[...groups].map(([group, list]) => html`<section key=${group}><h3>${group}</h3>
      <dl>${list.map((one) => html`<div key=${one.keys}><dt>${keyNames(one.keys).map((key) => html`<kbd key=${key}>${key}</kbd>`)}</dt><dd>${one.words}</dd></div>`)}</dl></section>`)}</div><//>`;
}
