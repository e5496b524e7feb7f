/** Tabs as links where they filter a page: the address says which one is chosen. */
import { html } from '../lib.js';

/** `tabs`: [{value, label, count, tone, to}]. */
export function LinkTabs({ label, value, tabs }) {
  return html`<nav class="tabs" aria-label=${label}>${tabs.map((tab) => html`
    <a key=${tab.value} href=${tab.to} class=${`tab ${tab.tone ? `tone-${tab.tone}` : ''}`} aria-current=${tab.value === value ? 'page' : undefined}>
      ${tab.label}${tab.count !== undefined && html`<span class="tab-count">${tab.count}</span>`}</a>`)}</nav>`;
}

/** Tabs inside a page: `tabs` as [[value, label], ...], and the panel as children. */
export function Tabs({ label, value, tabs, onChange, children }) {
  const keys = (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const at = tabs.findIndex(([one]) => one === value);
    const to = tabs[(at + step + tabs.length) % tabs.length][0];
    onChange(to);
    event.currentTarget.querySelector(`#tab-${to}`).focus();
  };
  return html`<div class="tabbed"><div class="tabs" role="tablist" aria-label=${label} onKeyDown=${keys}>${tabs.map(([one, words]) => html`
      <button type="button" role="tab" class="tab" key=${one} id=${`tab-${one}`} aria-selected=${one === value} aria-controls="tabpanel"
        tabindex=${one === value ? 0 : -1} onClick=${() => onChange(one)}>${words}</button>`)}</div>
    <div role="tabpanel" id="tabpanel" aria-labelledby=${`tab-${value}`} tabindex="0">${children}</div></div>`;
}
