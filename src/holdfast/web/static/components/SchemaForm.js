/**
 * A form for a task's arguments, made from their JSON Schema. What a plain control cannot hold
 * (objects, lists, unions) is typed as JSON; so is everything, if there is no schema.
 */
import { html } from '../lib.js';
import { parse, stringify } from '../json.js';
import { Text } from './Text.js';

/** {name, schema, required} for each argument; null where a form cannot be made. */
export function fieldsOf(schema) {
  if (!schema || schema.type !== 'object' || !schema.properties) return null;
  const required = new Set(schema.required || []);
  return Object.entries(schema.properties).map(([name, one]) => ({ name, schema: undecided(resolve(one, schema), required.has(name)), required: required.has(name) }));
}

/** A box that is not ticked says no; where the task has a default of its own, saying nothing must be possible. */
function undecided(schema, required) {
  return schema.type === 'boolean' && !required && schema.default === undefined ? { ...schema, enum: [true, false] } : schema;
}

/** Follows a reference, and takes the one kind out of "this or null". */
function resolve(one, whole, depth = 0) {
  if (depth > 5) return {};
  if (one.$ref) {
    const target = one.$ref.replace(/^#\//, '').split('/').reduce((at, name) => at && at[name], whole);
    return { ...resolve(target || {}, whole, depth + 1), title: one.title, description: one.description ?? (target || {}).description, default: one.default };
  }
  const kinds = (one.anyOf || one.oneOf || []).filter((kind) => kind.type !== 'null');
  if (kinds.length === 1) return { ...resolve(kinds[0], whole, depth + 1), default: one.default, nullable: true, description: one.description };
  return one;
}

export function kindOf(schema) {
  if (Array.isArray(schema.enum)) return 'enum';
  if (schema.type === 'boolean') return 'boolean';
  if (schema.type === 'integer' || schema.type === 'number') return schema.type;
  if (schema.type === 'string') return schema.format === 'date-time' || !schema.maxLength || schema.maxLength < 200 ? 'string' : 'text';
  return 'json';
}

/** What the controls hold at first: text, or true and false. */
export function initial(fields) {
  return Object.fromEntries(fields.map(({ name, schema }) => [name, shown(schema, schema.default)]));
}

export function shown(schema, value) {
  const kind = kindOf(schema);
  if (kind === 'boolean') return Boolean(value);
  if (value === undefined || value === null) return '';
  return kind === 'json' || kind === 'enum' ? stringify(value) : String(value);
}

/** The payload, or {errors: {name: words}}. What was left empty and is not required is left out. */
export function payloadOf(fields, values) {
  const payload = {};
  const errors = {};
  for (const { name, schema, required } of fields) {
    const kind = kindOf(schema);
    const value = values[name];
    if (kind === 'boolean') { payload[name] = Boolean(value); continue; }
    if (value === '' || value === undefined) {
      if (required && kind === 'string') payload[name] = '';
      else if (required) errors[name] = 'It is needed.';
      continue;
    }
    try {
      payload[name] = kind === 'string' || kind === 'text' ? value : parse(value);
    } catch {
      errors[name] = kind === 'json' ? 'This is not JSON.' : 'This is not a number.';
    }
    if (kind === 'integer' && payload[name] !== undefined && typeof payload[name] !== 'bigint' && !Number.isInteger(payload[name])) errors[name] = 'It has to be a whole number.';
  }
  return { payload, errors };
}

export function SchemaForm({ fields, values, errors, onChange }) {
  return fields.map((field) => html`<${Field} key=${field.name} ...${field} value=${values[field.name]} error=${errors[field.name]}
    onChange=${(value) => onChange({ ...values, [field.name]: value })} />`);
}

function Field({ name, schema, required, value, error, onChange }) {
  const kind = kindOf(schema);
  const id = `arg-${name}`;
  const hint = [schema.description, !required && kind !== 'boolean' && 'optional'].filter(Boolean).join(' · ');
  return html`<div class=${`field ${kind === 'boolean' ? 'field-check' : ''}`}>
    <label for=${id}><code><${Text} value=${name} /></code><span class="faint">${schema.format || schema.type || 'json'}</span></label>
    <${Control} id=${id} kind=${kind} schema=${schema} required=${required} value=${value} onChange=${onChange} invalid=${Boolean(error)} />
    ${error ? html`<small class="bad" id=${`${id}-error`}><${Text} value=${error} /></small>` : hint && html`<small><${Text} value=${hint} /></small>`}</div>`;
}

function Control({ id, kind, schema, required, value, onChange, invalid }) {
  const common = { id, 'aria-invalid': invalid || undefined, 'aria-describedby': invalid ? `${id}-error` : undefined };
  const input = (event) => onChange(event.target.value);
  if (kind === 'boolean') return html`<input type="checkbox" ...${common} checked=${value} onChange=${(event) => onChange(event.target.checked)} />`;
  if (kind === 'enum') {
    return html`<select ...${common} value=${value} onChange=${input}>${(!required || value === '') && html`<option value=""></option>`}
      ${schema.enum.map((one) => html`<option key=${stringify(one)} value=${stringify(one)}>${String(one)}</option>`)}</select>`;
  }
  if (kind === 'json' || kind === 'text') return html`<textarea class=${kind === 'json' ? 'mono' : ''} rows="3" spellcheck="false" ...${common} value=${value} onInput=${input} placeholder=${kind === 'json' ? 'JSON' : ''}></textarea>`;
  const inputMode = { integer: 'numeric', number: 'decimal' }[kind];
  return html`<input type="text" inputmode=${inputMode} autocomplete="off" ...${common} value=${value} onInput=${input} placeholder=${schema.format === 'date-time' ? '2026-11-30T09:00:00Z' : ''} />`;
}
