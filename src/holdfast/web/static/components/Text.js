/** Text that others wrote: always text nodes, with what deceives the eye shown as its code. */
import { html } from '../lib.js';
import { DECEIVING, escapeOf } from '../format.js';

const SPLIT = new RegExp(`(${DECEIVING.source})`);

export function Text({ value }) {
  const text = String(value ?? '');
  if (!DECEIVING.test(text)) return text;
  return text.split(SPLIT).map((piece, index) => (index % 2
    ? html`<span class="escaped" title="A character that cannot be seen">${escapeOf(piece)}</span>` : piece));
}

/** Links only to the web; anything else stays text. */
export function OutLink({ to }) {
  const safe = /^https?:\/\/[^\s]+$/i.test(to);
  return safe ? html`<a href=${to} target="_blank" rel="noopener noreferrer"><${Text} value=${to} /></a>` : html`<${Text} value=${to} />`;
}
