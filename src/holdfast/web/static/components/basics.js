/** Small things that every page uses. */
import { html, useState, useRef, useEffect } from '../lib.js';
import { Icon } from './icons.js';
import { Text } from './Text.js';
import { toast } from './Toast.js';

export function Button({ icon, kind = '', busy = false, children, class: extra = '', ...rest }) {
  return html`<button type="button" class=${`button ${kind && `button-${kind}`} ${extra}`} aria-busy=${busy || undefined} ...${rest} disabled=${busy || rest.disabled}>
    ${icon && html`<${Icon} name=${icon} size=${14} />`}${children}</button>`;
}

/** A button that is only a sign; its label is said, and shown when pointed at. */
export function IconButton({ icon, label, class: extra = '', ...rest }) {
  return html`<button type="button" class=${`icon-button ${extra}`} aria-label=${label} title=${label} ...${rest}><${Icon} name=${icon} /></button>`;
}

export function Panel({ title, note, actions, children, class: extra = '', flush = false, id }) {
  return html`<section class=${`panel ${flush ? 'panel-flush' : ''} ${extra}`} aria-label=${typeof title === 'string' ? title : undefined} id=${id}>
    ${title && html`<header class="panel-head"><h2>${title}</h2>${note && html`<span class="faint">${note}</span>`}
      ${actions && html`<div class="panel-actions">${actions}</div>`}</header>`}
    ${children}</section>`;
}

export function PageHead({ title, note, children }) {
  return html`<header class="page-head"><div class="page-title"><h1>${title}</h1>${note && html`<p class="faint">${note}</p>`}</div>
    <div class="page-actions">${children}</div></header>`;
}

export function EmptyState({ icon = 'anchor', title, children }) {
  return html`<div class="empty"><${Icon} name=${icon} size=${28} /><p class="empty-title">${title}</p>${children && html`<div class="faint">${children}</div>`}</div>`;
}

/** What went wrong, in the server's words, and a way on. */
export function ErrorState({ error, retry, compact = false }) {
  const fields = (error.errors || []).filter((one) => `${one.field}: ${one.message}` !== error.detail);
  return html`<div class=${`notice notice-bad ${compact ? 'notice-compact' : ''}`} role="alert"><${Icon} name="warning" />
    <div><strong>${error.title || 'Error'}${error.status ? ` (${error.status})` : ''}</strong>
      ${error.detail && html`<p><${Text} value=${error.detail} /></p>`}
      ${fields.length > 0 && html`<ul>${fields.map((one) => html`<li><code><${Text} value=${one.field} /></code> <${Text} value=${one.message} /></li>`)}</ul>`}
    </div>${retry && html`<${Button} icon="retry" onClick=${retry}>Try again<//>`}</div>`;
}

export function Skeleton({ lines = 3 }) {
  return html`<div class="skeleton" aria-hidden="true">${Array.from({ length: lines }, (_, index) => html`<i key=${index}></i>`)}</div>`;
}

/** Draws the data of a resource, and its waiting and failing. */
export function Loaded({ from, lines = 4, children }) {
  if (from.data !== undefined) {
    return html`${from.error && html`<${ErrorState} error=${from.error} retry=${from.reload} compact />`}${children(from.data)}`;
  }
  if (from.error) return html`<${ErrorState} error=${from.error} retry=${from.reload} />`;
  return html`<${Skeleton} lines=${lines} />`;
}

export async function copyText(text, what = 'Copied') {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // Without https there is no clipboard for scripts; the old way still works.
    const area = document.createElement('textarea');
    area.value = text;
    (document.querySelector('dialog[open]') || document.body).append(area);
    area.select();
    document.execCommand('copy');
    area.remove();
  }
  toast(what);
}

export function CopyButton({ text, label = 'Copy', icon = 'copy' }) {
  const [done, setDone] = useState(false);
  const timer = useRef();
  useEffect(() => () => clearTimeout(timer.current), []);
  const copy = () => {
    copyText(typeof text === 'function' ? text() : text, `${label}: copied`);
    setDone(true);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => setDone(false), 1200);
  };
  return html`<${IconButton} icon=${done ? 'check' : icon} label=${label} onClick=${copy} class="copy" />`;
}

/** Choices of which one holds: [[value, label, note], ...]. */
export function Segments({ label, value, options, onChange }) {
  return html`<div class="segments" role="group" aria-label=${label}>${options.map(([one, words]) => html`
    <button type="button" key=${one} aria-pressed=${one === value} onClick=${() => onChange(one)}>${words}</button>`)}</div>`;
}
