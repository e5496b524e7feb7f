/** The system: the database and how it is set up, sizes, what is kept for how long, and who gets in. */
import { html } from '../lib.js';
import { apiUrl } from '../api.js';
import { useResource } from '../resource.js';
import { can, session } from '../session.js';
import { bytes, duration, plural } from '../format.js';
import { EmptyState, Loaded, PageHead, Panel } from '../components/basics.js';
import { Facts, Sign } from '../components/Sign.js';
import { Text } from '../components/Text.js';
import { Time } from '../components/Time.js';
import { Tokens } from '../components/Tokens.js';

const LEVELS = { ok: ['completed', 'check'], warn: ['retrying', 'warning'], fail: ['failed', 'failed'] };
const WORDS = { fail: 0, warn: 1, ok: 2 };

export default function System() {
  const system = useResource(can('system.read') ? '/system' : null, { every: 30 });
  return html`<${PageHead} title="System"><a class="button" href=${apiUrl('/openapi.json')} target="_blank" rel="noopener">API description</a><//>
    ${can('system.read') ? html`<${Loaded} from=${system} lines=${10}>${(data) => html`<div class="system"><div class="stack"><${Findings} list=${data.findings} />${can('tokens.manage') && html`<${Tokens} />`}</div>
      <div class="stack"><${Panel} title="Facts"><${Facts} rows=${facts(data)} /><//>
        ${data.sizes && html`<${Sizes} sizes=${data.sizes} />`}
        <${Panel} title="Kept" note="after they ended"><${Facts} rows=${Object.entries(data.retention).map(([status, seconds]) => [status, duration(seconds)])} /><//>
        <${Panel} title="Settings"><${Facts} rows=${settings(data.settings)} /><//></div></div>`}<//>`
    : html`<section class="panel" aria-label="System"><${EmptyState} icon="access" title="You may not see the system" /></section>`}`;
}

function facts(data) {
  return [
    ['Engine', data.engine === 'postgres' ? 'PostgreSQL' : 'SQLite'],
    data.server_version && ['Version', html`<${Text} value=${data.server_version} />`],
    ['Database', html`<span class="mono"><${Text} value=${data.database} /></span>`],
    ['Holdfast', html`<${Text} value=${data.version} />`],
    ['Python', html`<${Text} value=${data.python} />`],
    data.schema && ['Tables', html`version ${data.schema.version ?? '–'}`],
    ...(data.schema ? data.schema.migrations : []).slice(-3).map((one) => [html`<span class="mono"><${Text} value=${one.name} /></span>`, html`<${Time} at=${one.applied_at} />`]),
    ['Access', { token: 'tokens', session: 'tokens', host: 'the application', open: 'open to all' }[session.value.auth || session.value.via] || 'tokens'],
    session.value.read_only && ['Mode', 'read only'],
  ];
}

function Findings({ list }) {
  const sorted = [...list].sort((a, b) => WORDS[a.level] - WORDS[b.level]);
  const bad = list.filter((one) => one.level !== 'ok').length;
  return html`<${Panel} title="Findings" note=${bad ? `${plural(bad, 'finding')} to look at` : 'all is well'} flush><ul class="findings">${sorted.map((one) => {
    const [tone, icon] = LEVELS[one.level] || LEVELS.warn;
    return html`<li key=${one.subject + one.text}><${Sign} tone=${tone} icon=${icon}>${one.level}<//><div><strong><${Text} value=${one.subject} /></strong> <span><${Text} value=${one.text} /></span></div></li>`;
  })}</ul><//>`;
}

function Sizes({ sizes }) {
  const { database, log, free, tables } = sizes;
  const parts = Object.entries(tables || {}).sort((a, b) => b[1] - a[1]);
  const top = Math.max(1, ...parts.map(([, size]) => size));
  return html`<${Panel} title="Sizes"><${Facts} rows=${[
      ['Database', bytes(database)], log !== null && log !== undefined && ['Log (WAL)', bytes(log)], free !== null && free !== undefined && ['Free inside', bytes(free)],
    ]} />${parts.length > 0 && html`<ul class="sizes">${parts.map(([name, size]) => html`<li key=${name}><span class="clip mono"><${Text} value=${name} /></span><span class="size-bar"><i style=${{ width: `${(100 * size) / top}%` }}></i></span><span class="num">${bytes(size)}</span></li>`)}</ul>`}<//>`;
}

const SPANS = new Set(['timeout', 'poll_interval', 'heartbeat', 'max_age', 'stall', 'window']);

function settings(values, prefix = '') {
  return Object.entries(values).flatMap(([name, value]) => {
    if (value !== null && typeof value === 'object' && !Array.isArray(value)) return settings(value, `${name}.`);
    const words = value === null ? '–' : SPANS.has(name) && typeof value === 'number' ? duration(value) : String(value);
    return [[html`<span class="mono">${prefix}${name}</span>`, html`<${Text} value=${words} />`]];
  });
}
