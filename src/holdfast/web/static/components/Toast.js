/** Short news at the edge; read out by screen readers, gone by itself. */
import { html, signal } from '../lib.js';
import { Icon } from './icons.js';
import { Text } from './Text.js';

const toasts = signal([]);
let serial = 0;

/** `tone`: "good" or "bad". `action`: {label, run}. */
export function toast(text, { tone = 'good', action, seconds = tone === 'bad' ? 9 : 4 } = {}) {
  const id = ++serial;
  toasts.value = [...toasts.peek().slice(-3), { id, text, tone, action }];
  setTimeout(() => dismiss(id), seconds * 1000);
}

export const fail = (problem) => toast(problem.detail || problem.title || String(problem.message || problem), { tone: 'bad' });

const dismiss = (id) => { toasts.value = toasts.peek().filter((one) => one.id !== id); };

export function Toasts() {
  return html`<div class="toasts" role="status" aria-live="polite">${toasts.value.map((one) => html`
    <div class=${`toast toast-${one.tone}`} key=${one.id}><${Icon} name=${one.tone === 'bad' ? 'warning' : 'check'} />
      <span><${Text} value=${one.text} /></span>
      ${one.action && html`<button type="button" class="link" onClick=${() => { dismiss(one.id); one.action.run(); }}>${one.action.label}</button>`}
      <button type="button" class="icon-button" aria-label="Dismiss" onClick=${() => dismiss(one.id)}><${Icon} name="close" size=${12} /></button>
    </div>`)}</div>`;
}
