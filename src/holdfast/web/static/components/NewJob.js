/** The drawer that enqueues a job, with a form for the arguments of its task. */
import { html, signal, useEffect, useMemo, useState } from '../lib.js';
import { get, post } from '../api.js';
import { parse, stringify } from '../json.js';
import { go } from '../router.js';
import { shortId } from '../format.js';
import { Dialog } from './Dialog.js';
import { Button, ErrorState, Segments, Skeleton } from './basics.js';
import { SchemaForm, fieldsOf, initial, payloadOf, shown } from './SchemaForm.js';
import { Text } from './Text.js';
import { toast } from './Toast.js';

/** null, or {type, payload, of}: what the drawer begins with; `of` is the job that is duplicated. */
export const newJob = signal(null);
export const openNewJob = (start = {}) => { newJob.value = start; };

const OPTIONS = [
  ['queue', 'Queue', "the task's own"], ['priority', 'Priority', "the task's own"], ['delay', 'Delay', 'for example 10m'],
  ['key', 'Key', 'unique while it is unfinished'], ['max_attempts', 'Attempts', "the task's own"], ['timeout', 'Timeout', 'for example 30s'],
];

export function NewJob({ type: firstType = '', payload, of }) {
  const [tasks, setTasks] = useState(null);
  const [type, setType] = useState(firstType);
  const [error, setError] = useState(null);
  useEffect(() => { get('/tasks').then((answer) => setTasks(answer.tasks.filter((one) => one.registered || one.name === firstType)), setError); }, []);
  useEffect(() => { const field = tasks && document.getElementById('new-type'); if (field && !of) field.focus(); }, [tasks]);
  const close = () => { newJob.value = null; };
  const task = tasks && tasks.find((one) => one.name === type);
  return html`<${Dialog} title=${of ? 'Duplicate with changes' : 'New job'} onClose=${close} drawer>
    ${error && html`<${ErrorState} error=${error} />`}
    ${!tasks && !error && html`<${Skeleton} lines=${5} />`}
    ${tasks && html`<div class="field"><label for="new-type">Task</label>
      <select id="new-type" value=${type} disabled=${Boolean(of)} autofocus onChange=${(event) => setType(event.target.value)}>
        <option value="">Choose a task</option>${tasks.map((one) => html`<option key=${one.name} value=${one.name}>${one.name}</option>`)}</select>
      ${task && task.doc && html`<small><${Text} value=${task.doc} /></small>`}</div>
      ${(task || of) && html`<${Arguments} key=${type} type=${type} task=${task} payload=${payload} of=${of} close=${close} />`}`}<//>`;
}

function Arguments({ type, task, payload, of, close }) {
  const fields = useMemo(() => task && fieldsOf(task.schema), [task]);
  const [mode, setMode] = useState(fields ? 'form' : 'json');
  const [values, setValues] = useState(() => begin(fields, payload));
  const [text, setText] = useState(() => stringify(payload || {}, 2));
  const [options, setOptions] = useState({});
  const [errors, setErrors] = useState({});
  const [problem, setProblem] = useState(null);
  const [busy, setBusy] = useState(false);

  const read = () => {
    if (mode === 'form') return payloadOf(fields, values);
    try {
      const value = parse(text);
      return value && typeof value === 'object' && !Array.isArray(value) ? { payload: value, errors: {} } : { errors: { json: 'The arguments have to be an object.' } };
    } catch (wrong) {
      return { errors: { json: String(wrong.message) } };
    }
  };
  const change = (next) => {
    if (next === 'json' && mode === 'form') setText(stringify(payloadOf(fields, values).payload, 2));
    if (next === 'form') {
      const found = read();
      if (found.payload) setValues(begin(fields, found.payload));
    }
    setMode(next);
  };
  const submit = async (event) => {
    event.preventDefault();
    const found = read();
    setErrors(found.errors);
    setProblem(null);
    if (Object.keys(found.errors).length) return;
    setBusy(true);
    try {
      const job = of ? await post(`/jobs/${of}/duplicate`, { payload: found.payload }) : await post('/jobs', { type, payload: found.payload, ...given(options) });
      close();
      toast(job.created === false ? 'A job with this key was there already.' : `Enqueued ${type} …${shortId(job.id)}`, { action: { label: 'Open', run: () => go(`/jobs/${job.id}`) } });
    } catch (wrong) {
      setProblem(wrong);
      setErrors(Object.fromEntries((wrong.errors || []).map((one) => [one.field.replace(/^body\.payload\./, ''), one.message])));
      setBusy(false);
    }
  };
  return html`<form class="drawer-form" onSubmit=${submit} noValidate>
    <div class="drawer-scroll">
    ${fields && html`<div class="row-between"><h3>Arguments</h3><${Segments} label="Arguments as" value=${mode} options=${[['form', 'Form'], ['json', 'JSON']]} onChange=${change} /></div>`}
    ${mode === 'form' ? (fields.length ? html`<${SchemaForm} fields=${fields} values=${values} errors=${errors} onChange=${setValues} />` : html`<p class="faint">The task takes no arguments.</p>`)
    : html`<div class="field"><label for="new-payload">Arguments as JSON</label>
        <textarea id="new-payload" class="mono" rows="10" spellcheck="false" value=${text} onInput=${(event) => setText(event.target.value)} aria-invalid=${errors.json ? true : undefined}></textarea>
        ${errors.json && html`<small class="bad">${errors.json}</small>`}</div>`}
    ${!of && html`<details class="more"><summary>Options</summary><div class="grid-2">${OPTIONS.map(([name, label, hint]) => html`<label class="field" key=${name}><span>${label}</span>
      <input value=${options[name] || ''} placeholder=${hint} autocomplete="off" onInput=${(event) => setOptions({ ...options, [name]: event.target.value })} /></label>`)}</div></details>`}
    ${problem && html`<${ErrorState} error=${problem} compact />`}
    </div>
    <footer class="dialog-foot"><${Button} onClick=${close}>Back<//><button class="button button-primary" disabled=${busy} aria-busy=${busy}>Enqueue</button></footer>
  </form>`;
}

const begin = (fields, payload) => (fields ? { ...initial(fields), ...Object.fromEntries(fields.filter(({ name }) => payload && name in payload).map(({ name, schema }) => [name, shown(schema, payload[name])])) } : {});

/** What was filled in; numbers as numbers. */
function given(options) {
  const filled = Object.entries(options).filter(([, value]) => value.trim() !== '');
  return Object.fromEntries(filled.map(([name, value]) => [name, /^(priority|max_attempts)$/.test(name) && /^-?\d+$/.test(value.trim()) ? Number(value) : value.trim()]));
}
