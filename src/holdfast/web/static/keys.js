/** Keys: single ones ("?"), and one after another ("g j"). Never while somebody types. */
import { useEffect } from './lib.js';

const bindings = new Map();
let first = '';
let since = 0;

const isTyping = (target) => target instanceof HTMLElement
  && (target.isContentEditable || /^(TEXTAREA|SELECT)$/.test(target.tagName)
    || (target.tagName === 'INPUT' && !/^(checkbox|radio|button)$/.test(target.type)));

/** Gives what unbinds it. `words` is what the list of shortcuts says; without words it is not listed. */
export function bind(keys, action, words, group = 'General') {
  const stack = bindings.get(keys) || [];
  const entry = { keys, action, words, group };
  bindings.set(keys, [...stack, entry]);
  return () => bindings.set(keys, (bindings.get(keys) || []).filter((one) => one !== entry));
}

/** Binds while the component is there: [[keys, action, words], ...]. */
export function useKeys(list, inputs = [], group = 'This page') {
  useEffect(() => {
    const undo = list.map(([keys, action, words]) => bind(keys, action, words, group));
    return () => undo.forEach((one) => one());
  }, inputs);
}

/** What the list of shortcuts shows. */
export function listed() {
  return [...bindings.values()].map((stack) => stack.at(-1)).filter((one) => one && one.words);
}

function nameOf(event) {
  const key = event.key.length === 1 ? event.key : event.key;
  return event.ctrlKey || event.metaKey ? `mod+${key.toLowerCase()}` : key;
}

document.addEventListener('keydown', (event) => {
  if (event.defaultPrevented || event.altKey || event.isComposing) return;
  const name = nameOf(event);
  const open = document.querySelector('dialog[open]');
  if (!name.startsWith('mod+') && (isTyping(event.target) || open)) return;
  const sequence = first && performance.now() - since < 1200 ? `${first} ${name}` : name;
  first = '';
  const found = (bindings.get(sequence) || bindings.get(name) || []).at(-1);
  if (found) {
    event.preventDefault();
    found.action(event);
  } else if (name === 'g') {
    first = 'g';
    since = performance.now();
  }
});
