/** A state in a sign, a word and a colour, for what is not a job; and a switch. */
import { html } from '../lib.js';
import { Icon } from './icons.js';

export function Sign({ tone, icon, children, quiet = false }) {
  return html`<span class=${`badge tone-${tone} ${quiet ? 'badge-quiet' : ''}`}><${Icon} name=${icon} size=${13} />${children}</span>`;
}

export function Switch({ on, label, onChange, disabled = false }) {
  return html`<button type="button" role="switch" class="switch" aria-checked=${on} aria-label=${label} title=${label} disabled=${disabled} onClick=${() => onChange(!on)}><i></i></button>`;
}

/** A number with its name; a link where it leads somewhere. */
export function Stat({ label, value, note, tone = '', to }) {
  const inside = html`<span class="stat-label">${label}</span><span class="stat-value">${value}</span><span class="stat-note">${note || ' '}</span>`;
  const name = `stat ${tone && `stat-${tone}`}`;
  return to ? html`<a class=${name} href=${to}>${inside}</a>` : html`<div class=${name}>${inside}</div>`;
}

/** Names and values, side by side; false rows are left out. */
export function Facts({ rows }) {
  return html`<dl class="facts">${rows.filter(Boolean).map(([name, value]) => html`<dt key=${`${name}-`}>${name}</dt><dd key=${name}>${value}</dd>`)}</dl>`;
}
