/** A Python traceback, folded to the frames of the application. */
import { html, useState } from '../lib.js';
import { CopyButton } from './basics.js';
import { Text } from './Text.js';
import { plural } from '../format.js';

const FRAME = /^\s+File "(.+?)", line (\d+)(?:, in (.+))?$/;
const FOREIGN = /(site-packages|dist-packages|\/lib\/python\d|[\\/]Lib[\\/]|^<frozen|\/holdfast\/(worker|engine|outcome|task|codec|app|context)\b)/;

/** A traceback as pieces: {frame: [lines], foreign} and {text}. */
export function pieces(trace) {
  const found = [];
  for (const line of trace.split('\n')) {
    const frame = FRAME.exec(line);
    const last = found.at(-1);
    if (frame) found.push({ file: frame[1], line: frame[2], name: frame[3], code: [], foreign: FOREIGN.test(frame[1]) });
    else if (last && last.file && /^\s{4}/.test(line)) last.code.push(line.trim());
    else if (last && last.text !== undefined) last.text += `\n${line}`;
    else found.push({ text: line });
  }
  return found.filter((one) => one.file || one.text.trim());
}

/** Neighbouring foreign frames in one fold. */
function folded(list) {
  const groups = [];
  for (const one of list) {
    const last = groups.at(-1);
    if (one.foreign && Array.isArray(last)) last.push(one);
    else groups.push(one.foreign ? [one] : one);
  }
  return groups;
}

export function Trace({ text }) {
  const list = pieces(text);
  const own = list.some((one) => one.file && !one.foreign);
  return html`<div class="trace"><div class="json-tools"><${CopyButton} label="Copy traceback" text=${text} /></div>
    ${(own ? folded(list) : list).map((one, index) => (Array.isArray(one) ? html`<${Fold} key=${index} frames=${one} />` : html`<${Piece} key=${index} piece=${one} />`))}</div>`;
}

function Fold({ frames }) {
  const [open, setOpen] = useState(false);
  return html`<div class="trace-fold"><button type="button" class="json-toggle" aria-expanded=${open} onClick=${() => setOpen(!open)}>
      ${plural(frames.length, 'frame')} of libraries</button>
    ${open && frames.map((one, index) => html`<${Piece} key=${index} piece=${one} />`)}</div>`;
}

function Piece({ piece }) {
  if (!piece.file) return html`<div class="trace-text"><${Text} value=${piece.text} /></div>`;
  const cut = Math.max(piece.file.lastIndexOf('/'), piece.file.lastIndexOf('\\')) + 1;
  return html`<div class=${`trace-frame ${piece.foreign ? 'foreign' : ''}`}>
    <div class="trace-where"><span class="faint"><${Text} value=${piece.file.slice(0, cut)} /></span><${Text} value=${piece.file.slice(cut)} /><span class="trace-line">:${piece.line}</span>
      ${piece.name && html` <span class="trace-name"><${Text} value=${piece.name} /></span>`}</div>
    ${piece.code.length > 0 && html`<pre class="trace-code"><${Text} value=${piece.code.filter((line) => !/^[\^~\s]+$/.test(line)).join('\n')} /></pre>`}</div>`;
}
