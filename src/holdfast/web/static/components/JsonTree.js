/** JSON as a tree whose branches open; long texts and lists are shown in part. */
import { html, useState } from '../lib.js';
import { stringify } from '../json.js';
import { CopyButton } from './basics.js';
import { Text, OutLink } from './Text.js';

const LONG = 400;
const MANY = 100;

export function JsonTree({ value, label = 'Value' }) {
  return html`<div class="json" role="group" aria-label=${label}>
    <div class="json-tools"><${CopyButton} label=${`Copy ${label.toLowerCase()} as JSON`} text=${() => stringify(value, 2)} /></div>
    <${Node} value=${value} depth=${0} /></div>`;
}

function Node({ name, value, depth }) {
  const isBranch = value !== null && typeof value === 'object';
  return isBranch ? html`<${Branch} name=${name} value=${value} depth=${depth} />`
    : html`<div class="json-leaf">${name !== undefined && html`<${Name} name=${name} />`}<${Leaf} value=${value} /></div>`;
}

const Name = ({ name }) => html`<span class="json-name"><${Text} value=${name} /></span><span class="json-colon">: </span>`;

function Branch({ name, value, depth }) {
  const [open, setOpen] = useState(depth < 2);
  const [limit, setLimit] = useState(MANY);
  const isList = Array.isArray(value);
  const entries = isList ? value.map((one, index) => [index, one]) : Object.entries(value);
  const size = isList ? `[${entries.length}]` : `{${entries.length}}`;
  if (!entries.length) return html`<div class="json-leaf">${name !== undefined && html`<${Name} name=${name} />`}<span class="faint">${isList ? '[ ]' : '{ }'}</span></div>`;
  return html`<div class="json-branch">
    <button type="button" class="json-toggle" aria-expanded=${open} onClick=${() => setOpen(!open)}>
      <span>${name === undefined ? '' : html`<${Name} name=${name} />`}<span class="faint">${size}</span></span></button>
    ${open && html`<div class="json-children">${entries.slice(0, limit).map(([key, one]) => html`<${Node} key=${key} name=${key} value=${one} depth=${depth + 1} />`)}
      ${entries.length > limit && html`<button type="button" class="link" onClick=${() => setLimit(limit + 500)}>${entries.length - limit} more</button>`}</div>`}
  </div>`;
}

function Leaf({ value }) {
  const [whole, setWhole] = useState(false);
  if (value === null) return html`<span class="json-null">null</span>`;
  if (typeof value === 'boolean') return html`<span class="json-bool">${String(value)}</span>`;
  if (typeof value === 'number' || typeof value === 'bigint') return html`<span class="json-number">${String(value)}</span>`;
  if (value.length <= LONG || whole) return html`<span class="json-text">"<${/^https?:/.test(value) ? Web : Text} value=${value} />"</span>`;
  return html`<span class="json-text">"<${Text} value=${value.slice(0, LONG)} />…"</span>
    <button type="button" class="link" onClick=${() => setWhole(true)}>all ${value.length} characters</button>`;
}

const Web = ({ value }) => html`<${OutLink} to=${value} />`;
