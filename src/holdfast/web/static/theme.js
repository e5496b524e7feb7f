/** Light, dark, or what the system says. */
import { signal } from './lib.js';

const KEY = 'holdfast.theme';
const system = matchMedia('(prefers-color-scheme: dark)');

/** "auto", "light" or "dark": what was chosen. */
export const choice = signal(document.documentElement.dataset.theme || 'auto');
/** True when what is shown is dark; charts follow it. */
export const dark = signal(isDark());

function isDark() {
  return choice.peek() === 'auto' ? system.matches : choice.peek() === 'dark';
}

export function setTheme(name) {
  choice.value = name;
  if (name === 'auto') delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = name;
  try {
    if (name === 'auto') localStorage.removeItem(KEY);
    else localStorage.setItem(KEY, name);
  } catch { /* the choice then lasts as long as the page */ }
  dark.value = isDark();
}

export function nextTheme() {
  const order = ['auto', 'light', 'dark'];
  setTheme(order[(order.indexOf(choice.peek()) + 1) % order.length]);
}

system.addEventListener('change', () => { dark.value = isDark(); });

/** The colour behind a token, as the canvas understands it. */
export function color(token, alpha) {
  const probe = document.createElement('i');
  probe.style.color = `var(--${token})`;
  probe.style.transition = 'none';
  document.body.append(probe);
  const value = getComputedStyle(probe).color;
  probe.remove();
  const digits = value.match(/[\d.]+/g) || [0, 0, 0];
  return alpha === undefined ? value : `rgba(${digits.slice(0, 3).join(',')},${alpha})`;
}
