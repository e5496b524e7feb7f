/** Which clock the pages show: the reader's own, or UTC, as servers write it in their logs. */
import { signal } from './lib.js';

const KEY = 'holdfast.zone';

/** "local" or "UTC". */
export const zone = signal(kept() === 'UTC' ? 'UTC' : 'local');

function kept() {
  try {
    return localStorage.getItem(KEY);
  } catch {
    return null;
  }
}

export function setZone(name) {
  zone.value = name;
  try {
    if (name === 'UTC') localStorage.setItem(KEY, name);
    else localStorage.removeItem(KEY);
  } catch { /* the choice then lasts as long as the page */ }
}

export const nextZone = () => setZone(zone.peek() === 'UTC' ? 'local' : 'UTC');
