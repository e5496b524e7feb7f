/** A button that opens a list of actions: [{label, icon, run, danger, disabled, why, href}]; null draws a line. */
import { html, useEffect, useRef, useState } from '../lib.js';
import { Icon } from './icons.js';

export function Menu({ label, icon = 'more', text, items, kind = '' }) {
  const [open, setOpen] = useState(false);
  const box = useRef();
  const button = useRef();
  useEffect(() => {
    if (!open) return undefined;
    const first = box.current.querySelector('[role=menuitem]:not([aria-disabled])');
    if (first) first.focus();
    const outside = (event) => { if (!box.current.contains(event.target)) setOpen(false); };
    document.addEventListener('pointerdown', outside);
    return () => document.removeEventListener('pointerdown', outside);
  }, [open]);
  const close = () => { setOpen(false); button.current.focus(); };
  const keys = (event) => {
    const entries = [...box.current.querySelectorAll('[role=menuitem]')];
    const at = entries.indexOf(document.activeElement);
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: entries.length - 1 }[event.key];
    if (event.key === 'Escape' || event.key === 'Tab') {
      if (event.key === 'Escape') { event.preventDefault(); event.stopPropagation(); }
      close();
    } else if (to !== undefined && entries.length) {
      event.preventDefault();
      entries[(to + entries.length) % entries.length].focus();
    }
  };
  const pick = (item) => () => { if (!item.disabled) { close(); item.run && item.run(); } };
  return html`<span class="menu" ref=${box}>
    <button type="button" ref=${button} class=${text ? `button ${kind && `button-${kind}`}` : 'icon-button'} aria-haspopup="menu" aria-expanded=${open}
      aria-label=${text ? undefined : label} title=${text ? undefined : label} onClick=${() => setOpen(!open)}>
      ${text ? html`${text}<${Icon} name="down" size=${12} />` : html`<${Icon} name=${icon} />`}</button>
    ${open && html`<div class="menu-list" role="menu" aria-label=${label} onKeyDown=${keys}>${items.map((item, index) => (item === null
      ? html`<hr key=${index} />`
      : item.href
        ? html`<a key=${index} role="menuitem" tabindex="-1" href=${item.href} download=${item.download} onClick=${() => setOpen(false)}><${Icon} name=${item.icon} size=${14} />${item.label}</a>`
        : html`<button key=${index} type="button" role="menuitem" tabindex="-1" class=${item.danger ? 'danger' : ''} aria-disabled=${item.disabled || undefined}
            title=${item.disabled ? item.why : undefined} onClick=${pick(item)}><${Icon} name=${item.icon} size=${14} />${item.label}</button>`))}</div>`}
  </span>`;
}
