/** The query bar: completes qualifiers and values; Enter searches, Escape closes. */
import { html, useEffect, useRef, useState } from '../lib.js';
import { complete, wordAt } from '../query.js';
import { IconButton } from './basics.js';
import { Icon } from './icons.js';
import { Text } from './Text.js';

export function QueryBar({ value, onSearch, placeholder }) {
  const [text, setText] = useState(value);
  const [list, setList] = useState([]);
  const [at, setAt] = useState(-1);
  const input = useRef();
  const turn = useRef(0);
  useEffect(() => setText(value), [value]);

  const suggest = async () => {
    const mine = ++turn.current;
    const { text: word } = wordAt(input.current.value, input.current.selectionStart);
    const found = await complete(word);
    if (mine !== turn.current || document.activeElement !== input.current) return;
    setList(found);
    setAt(-1);
  };
  const close = () => { turn.current += 1; setList([]); setAt(-1); };
  const search = (query) => { close(); onSearch(query.trim()); };
  const pick = (entry) => {
    const word = wordAt(text, input.current.selectionStart);
    const next = text.slice(0, word.from) + entry.insert + text.slice(word.to).replace(/^ /, entry.insert.endsWith(' ') ? '' : ' ');
    const caret = word.from + entry.insert.length;
    setText(next);
    input.current.value = next;
    input.current.focus();
    input.current.setSelectionRange(caret, caret);
    close(); // what was offered is of the word before; names may take a moment to come
    suggest();
  };
  const keys = (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step && list.length) {
      event.preventDefault();
      setAt((at + step + list.length) % list.length);
    } else if (event.key === 'Tab' && list.length && !event.shiftKey && at >= 0) {
      event.preventDefault();
      pick(list[at]);
    } else if (event.key === 'Enter') {
      event.preventDefault();
      if (at >= 0 && list[at]) pick(list[at]);
      else search(text);
    } else if (event.key === 'Escape') {
      if (list.length) close();
      else input.current.blur();
    }
  };
  return html`<form class="query" role="search" onSubmit=${(event) => { event.preventDefault(); search(text); }}>
    <div class="query-box"><${Icon} name="search" size=${15} />
      <input ref=${input} data-query type="text" role="combobox" aria-label="Search jobs" aria-expanded=${list.length > 0} aria-controls="query-list" aria-autocomplete="list"
        aria-activedescendant=${at >= 0 ? `query-${at}` : undefined} autocomplete="off" autocapitalize="off" spellcheck="false" placeholder=${placeholder}
        value=${text} onInput=${(event) => { setText(event.target.value); setAt(-1); suggest(); }} onFocus=${suggest} onKeyDown=${keys} onBlur=${() => setTimeout(close, 120)} />
      ${text ? html`<${IconButton} icon="close" label="Clear the search" onClick=${() => { setText(''); search(''); input.current.focus(); }} />` : html`<kbd>/</kbd>`}</div>
    <ul id="query-list" class="query-list" role="listbox" aria-label="Completions" hidden=${!list.length}>${list.map((entry, index) => html`
      <li key=${entry.label} id=${`query-${index}`} role="option" aria-selected=${index === at} onMouseDown=${(event) => { event.preventDefault(); pick(entry); }}>
        <code><${Text} value=${entry.label} /></code><small><${Text} value=${entry.hint} /></small></li>`)}</ul></form>`;
}
