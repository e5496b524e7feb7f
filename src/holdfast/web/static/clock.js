/** The time by the server's clock, and a beat each second while somebody looks. */
import { signal } from './lib.js';

let skew = 0;

/** From the Date header, which knows seconds only: small differences are noise. */
export function setSkew(header) {
  const theirs = Date.parse(header || '');
  if (Number.isNaN(theirs)) return;
  const difference = theirs - Date.now();
  skew = Math.abs(difference) > 2500 ? difference : 0;
}

export const present = () => Date.now() + skew;

/** Milliseconds; changes each second. Reading it in a component redraws the component. */
export const now = signal(present());
setInterval(() => { if (!document.hidden) now.value = present(); }, 1000);
document.addEventListener('visibilitychange', () => { if (!document.hidden) now.value = present(); });
