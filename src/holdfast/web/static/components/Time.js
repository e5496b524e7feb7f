/** Moments and spans that stay true while one looks at them. */
import { html, useComputed } from '../lib.js';
import { now } from '../clock.js';
import { relative, clock, fullTime, duration } from '../format.js';

/** "3 min ago", or with `exact` the clock's time; the whole moment is in the tooltip. */
export function Time({ at, exact = false, millis = false }) {
  if (!at) return html`<span class="faint">–</span>`;
  return html`<${Moving} key=${at} at=${at} exact=${exact} millis=${millis} />`;
}

function Moving({ at, exact, millis }) {
  const words = useComputed(() => (exact ? clock(at, now.value, { millis }) : relative(at, now.value)));
  return html`<time datetime=${at} title=${fullTime(at)}>${words}</time>`;
}

/** How long something has been going on. */
export function Since({ from }) {
  return html`<${Growing} key=${from} from=${from} />`;
}

function Growing({ from }) {
  const words = useComputed(() => duration(Math.max(0, (now.value - Date.parse(from)) / 1000)));
  return html`<span>${words}</span>`;
}
