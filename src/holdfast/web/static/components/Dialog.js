/** Dialogs of the browser's own kind: focus stays inside, Escape closes, the page behind is inert. */
import { html, signal, useEffect, useRef, useState } from '../lib.js';
import { Button, IconButton } from './basics.js';
import { Text } from './Text.js';

/** `drawer` puts it at the right edge. */
export function Dialog({ title, onClose, children, drawer = false, wide = false, plain = false }) {
  const box = useRef();
  useEffect(() => {
    const before = document.activeElement;
    box.current.showModal();
    // Without a first field the browser takes the close button, which is nobody's first wish.
    const head = box.current.querySelector('.dialog-head');
    if (head && head.contains(document.activeElement)) head.querySelector('h2').focus();
    return () => { if (before && before.isConnected) before.focus({ preventScroll: true }); };
  }, []);
  const shade = (event) => { if (event.target === box.current) onClose(); };
  return html`<dialog ref=${box} class=${`dialog ${drawer ? 'drawer' : ''} ${wide ? 'dialog-wide' : ''}`} aria-label=${title}
      onCancel=${(event) => { event.preventDefault(); onClose(); }} onMouseDown=${shade}>
    <div class="dialog-body">
      ${!plain && html`<header class="dialog-head"><h2 tabindex="-1">${title}</h2><${IconButton} icon="close" label="Close" onClick=${onClose} /></header>`}
      ${children}
    </div></dialog>`;
}

const question = signal(null);

/**
 * Asks before something is done. `typed`: a word that has to be typed first. Resolves to true or false;
 * with `fields` ([{name, label, value, type, hint}]) to their values or null.
 */
export function ask({ title, text, action = 'OK', danger = false, typed, fields, note }) {
  return new Promise((resolve) => {
    question.value = {
      title, text, action, danger, typed, fields, note,
      done: (answer) => { question.value = null; resolve(answer); },
    };
  });
}

export function Confirm() {
  return question.value && html`<${Question} ...${question.value} key=${question.value.title} />`;
}

function Question({ title, text, action, danger, typed, fields, note, done }) {
  const [word, setWord] = useState('');
  const [values, setValues] = useState(() => Object.fromEntries((fields || []).map((one) => [one.name, one.value ?? ''])));
  const no = () => done(fields ? null : false);
  const yes = (event) => {
    event.preventDefault();
    if (!typed || word === typed) done(fields ? values : true);
  };
  return html`<${Dialog} title=${title} onClose=${no}><form onSubmit=${yes}>
    ${text && html`<p><${Text} value=${text} /></p>`}
    ${note && html`<p class="faint">${note}</p>`}
    ${(fields || []).map((one, index) => html`<label class="field" key=${one.name}><span>${one.label}</span>
      <input type=${one.type || 'text'} value=${values[one.name]} autofocus=${index === 0} placeholder=${one.placeholder || ''}
        onInput=${(event) => setValues({ ...values, [one.name]: event.target.value })} />
      ${one.hint && html`<small>${one.hint}</small>`}</label>`)}
    ${typed && html`<label class="field"><span>Type <code>${typed}</code> to confirm</span>
      <input value=${word} autocomplete="off" autofocus onInput=${(event) => setWord(event.target.value)} /></label>`}
    <footer class="dialog-foot"><${Button} onClick=${no}>Back<//>
      <button class=${`button ${danger ? 'button-danger' : 'button-primary'}`} disabled=${typed ? word !== typed : false} autofocus=${!typed && !fields}>${action}</button></footer>
  </form><//>`;
}
