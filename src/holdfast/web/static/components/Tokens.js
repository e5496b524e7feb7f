/** Tokens: who gets in, made and revoked. What a token opens with is shown once. */
import { html, useState } from '../lib.js';
import { del, part, post } from '../api.js';
import { useResource } from '../resource.js';
import { act } from '../doing.js';
import { visible } from '../format.js';
import { Button, CopyButton, EmptyState, ErrorState, IconButton, Loaded, Panel } from './basics.js';
import { Dialog, ask } from './Dialog.js';
import { Sign } from './Sign.js';
import { Table } from './Table.js';
import { Text } from './Text.js';
import { Time } from './Time.js';
import { now } from '../clock.js';

const ROLES = { viewer: 'looks', operator: 'looks and operates', admin: 'everything, tokens too', enqueue: 'only enqueues' };

export function Tokens() {
  const tokens = useResource('/tokens', { every: 30 });
  const [making, setMaking] = useState(false);
  return html`<${Panel} title="Tokens" flush actions=${html`<${Button} class="button-small" icon="plus" onClick=${() => setMaking(true)}>New token<//>`}>
    <${Loaded} from=${tokens}>${(data) => html`<${Rows} rows=${data.tokens} done=${tokens.reload} />`}<//><//>
    ${making && html`<${Making} onClose=${() => { setMaking(false); tokens.reload(); }} />`}`;
}

function isOver(token) {
  return token.revoked_at ? 'revoked' : token.expires_at && Date.parse(token.expires_at) < now.peek() ? 'expired' : '';
}

function Rows({ rows, done }) {
  const revoke = async (token) => {
    const sure = await ask({ title: 'Revoke the token?', text: token.name, note: 'Nobody gets in with it any more, nor with a login that it has opened.', action: 'Revoke', danger: true });
    if (sure) await act(() => del(`/tokens/${part(token.id)}`), 'Revoked', done);
  };
  return html`<${Table} label="Tokens" class="tokens-table" rows=${rows} empty=${html`<${EmptyState} icon="access" title="No token" />`} rowProps=${(token) => ({ class: isOver(token) ? 'over' : '' })} columns=${[
    { name: 'name', label: 'Name', cell: (token) => html`<span class="row"><strong><${Text} value=${token.name} /></strong>${isOver(token) && html`<${Sign} tone="cancelled" icon="cancelled">${isOver(token)}<//>`}</span>` },
    { name: 'role', label: 'Role', cell: (token) => html`<${Text} value=${token.role} />${token.tasks.length + token.queues.length > 0 && html` <span class="faint" title=${visible([...token.tasks, ...token.queues].join(', '))}>for ${token.tasks.length + token.queues.length}</span>`}` },
    { name: 'used', label: 'Last used', align: 'end', cell: (token) => (token.last_used_at ? html`<${Time} at=${token.last_used_at} />` : html`<span class="faint">never</span>`) },
    { name: 'created', label: 'Made', align: 'end', cell: (token) => html`<span title=${visible(token.created_by || '')}><${Time} at=${token.created_at} /></span>` },
    { name: 'expires', label: 'Expires', align: 'end', cell: (token) => (token.expires_at ? html`<${Time} at=${token.expires_at} />` : html`<span class="faint">never</span>`) },
    { name: 'do', label: 'Actions', sr: true, align: 'end', cell: (token) => !isOver(token) && html`<${IconButton} icon="trash" label=${visible(`Revoke ${token.name}`)} onClick=${() => revoke(token)} />` },
  ]} />`;
}

const list = (text) => text.split(/[\s,]+/).filter(Boolean);

function Making({ onClose }) {
  const [values, setValues] = useState({ name: '', role: 'viewer', tasks: '', queues: '', expires: '' });
  const [made, setMade] = useState(null);
  const [error, setError] = useState(null);
  const [busy, setBusy] = useState(false);
  const set = (name) => (event) => setValues({ ...values, [name]: event.target.value });
  const make = async (event) => {
    event.preventDefault();
    setBusy(true);
    try {
      const limits = values.role === 'enqueue' ? { tasks: list(values.tasks), queues: list(values.queues) } : {};
      setMade(await post('/tokens', { name: values.name.trim(), role: values.role, ...limits, ...(values.expires.trim() ? { expires: values.expires.trim() } : {}) }));
      setError(null);
    } catch (problem) {
      setError(problem);
    }
    setBusy(false);
  };
  if (made) {
    return html`<${Dialog} title="The new token" onClose=${onClose}><p>This is the only time that it is shown. Keep it where secrets are kept.</p>
      <div class="secret"><code>${made.token}</code><${CopyButton} text=${made.token} label="Copy the token" /></div>
      <footer class="dialog-foot"><${Button} kind="primary" onClick=${onClose}>Done<//></footer><//>`;
  }
  return html`<${Dialog} title="New token" onClose=${onClose}><form onSubmit=${make}>
    ${error && html`<${ErrorState} error=${error} compact />`}
    <label class="field"><span>Name</span><input value=${values.name} required maxlength="100" autofocus autocomplete="off" placeholder="who or what uses it" onInput=${set('name')} /></label>
    <label class="field"><span>Role</span><select value=${values.role} onChange=${set('role')}>${Object.entries(ROLES).map(([role, what]) => html`<option key=${role} value=${role}>${role} – ${what}</option>`)}</select></label>
    ${values.role === 'enqueue' && html`<label class="field"><span>Tasks</span><input value=${values.tasks} autocomplete="off" onInput=${set('tasks')} /><small>Names, with commas between. Empty: all.</small></label>
      <label class="field"><span>Queues</span><input value=${values.queues} autocomplete="off" onInput=${set('queues')} /><small>Names, with commas between. Empty: all.</small></label>`}
    <label class="field"><span>Ends after</span><input value=${values.expires} autocomplete="off" placeholder="90d" onInput=${set('expires')} /><small>Such as 12h or 90d. Empty: never.</small></label>
    <footer class="dialog-foot"><${Button} onClick=${onClose}>Back<//><button class="button button-primary" disabled=${busy || !values.name.trim()} aria-busy=${busy}>Make it</button></footer>
  </form><//>`;
}
