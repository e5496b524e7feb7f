/** What the runs of a job wrote, with what they write now. */
import { html, useEffect, useLayoutEffect, useRef, useState } from '../lib.js';
import { get } from '../api.js';
import { paused } from '../live.js';
import { can } from '../session.js';
import { clock, fullTime, count } from '../format.js';
import { CopyButton, ErrorState, Panel } from './basics.js';
import { Text } from './Text.js';

const PAGE = 500; // lines of one answer
const MOST = 2000; // lines on the page: the last ones
const EVERY = 1000; // milliseconds between two looks, while it runs
const LAG = 1500; // workers write once a second: the last lines come after the end
const NEAR = 24; // pixels from the bottom that count as the bottom

/** `job`: whose; `path`: of it in the API. */
export function Logs({ job, path }) {
  if (!can('jobs.payload')) return null;
  return html`<${Tail} key=${path} job=${job} path=${path} />`;
}

function Tail({ job, path }) {
  const { lines, left, error, look } = useLines(path, job);
  const running = job.status === 'running';
  if (error) return html`<${Panel} title="Logs"><${ErrorState} error=${error} retry=${look} compact /><//>`;
  if (!lines.length) return html`<${Panel} title="Logs"><p class="faint">${running ? 'Nothing yet.' : 'Nothing was written with ctx.log.'}</p><//>`;
  return html`<${Panel} title="Logs" note=${running ? 'live' : ''} flush>
    ${left > 0 && html`<p class="log-note faint">The last ${count(MOST)} lines. holdfast jobs logs ${job.id} prints all.</p>`}
    <${Box} lines=${lines} /><//>`;
}

/** The lines so far; as long as it runs, and a moment longer, what comes behind the last one. */
function useLines(path, job) {
  const [shown, setShown] = useState({ lines: [], left: 0, error: null });
  const state = useRef({ after: undefined, busy: false, gone: false }).current;
  async function look() {
    if (state.busy || state.gone) return;
    state.busy = true;
    try {
      let answer;
      do {
        answer = await get(`${path}/logs`, { after: state.after, limit: PAGE });
        if (state.gone) return;
        state.after = answer.next ?? undefined;
        const more = answer.lines;
        setShown((old) => (more.length || old.error ? grown(old, more) : old));
      } while (answer.lines.length === PAGE);
    } catch (error) {
      if (!state.gone) setShown((old) => ({ ...old, error: old.lines.length ? null : error }));
    } finally {
      state.busy = false;
    }
  }
  useEffect(() => {
    state.gone = false;
    return () => { state.gone = true; };
  }, [state]);
  useEffect(() => {
    look();
    if (job.status !== 'running') {
      const once = setTimeout(look, LAG);
      return () => clearTimeout(once);
    }
    const timer = setInterval(() => { if (!document.hidden && !paused.peek()) look(); }, EVERY);
    return () => clearInterval(timer);
  }, [job.status, job.attempts]);
  return { ...shown, look };
}

function grown(old, more) {
  const lines = [...old.lines, ...more];
  const over = Math.max(0, lines.length - MOST);
  return { lines: lines.slice(over), left: old.left + over, error: null };
}

/** Scrolls with new lines, unless somebody has scrolled away to read. */
function Box({ lines }) {
  const box = useRef(null);
  const follows = useRef(true);
  const scrolled = () => {
    const { scrollHeight, scrollTop, clientHeight } = box.current;
    follows.current = scrollHeight - scrollTop - clientHeight < NEAR;
  };
  useLayoutEffect(() => { if (follows.current) box.current.scrollTop = box.current.scrollHeight; }, [lines]);
  const whole = () => lines.map((one) => `${one.at} ${one.level.toUpperCase()} ${one.text}`).join('\n');
  return html`<div class="logs"><div class="json-tools"><${CopyButton} label="Copy the log" text=${whole} /></div>
    <div class="log-lines" ref=${box} onScroll=${scrolled} tabindex="0" role="region" aria-label="Lines of the log">
      ${lines.map((one, index) => html`<${Line} key=${`${one.claim_no}.${one.line_no}`} line=${one} first=${!index || lines[index - 1].claim_no !== one.claim_no} />`)}</div></div>`;
}

function Line({ line, first }) {
  return html`${first && html`<div class="log-run faint">Attempt ${line.attempt}</div>`}
    <div class=${`log-line log-${line.level}`}><time datetime=${line.at} title=${fullTime(line.at)}>${clock(line.at, Date.now(), { millis: true })}</time>
      <span class="log-level">${line.level}</span><span class="log-text"><${Text} value=${line.text} /></span></div>`;
}
