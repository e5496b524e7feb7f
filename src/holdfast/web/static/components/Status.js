/** How a job stands: a sign, a word and a colour, so that no one of them is needed alone. */
import { html } from '../lib.js';
import { Icon } from './icons.js';

export const STATUSES = ['pending', 'running', 'scheduled', 'retrying', 'blocked', 'failed', 'completed', 'cancelled'];
export const FINISHED = ['completed', 'failed', 'cancelled'];

export function StatusBadge({ status, quiet = false }) {
  const known = STATUSES.includes(status) ? status : 'pending';
  return html`<span class=${`badge tone-${known} ${quiet ? 'badge-quiet' : ''}`}>
    <${Icon} name=${known} size=${13} class=${known === 'running' ? 'turning' : ''} />${status}</span>`;
}
