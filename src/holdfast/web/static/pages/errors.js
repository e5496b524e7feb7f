/** Errors, alike ones together: how many, since when, where, and a way to act on all of them. */
import { html, useEffect } from '../lib.js';
import { search } from '../api.js';
import { useResource } from '../resource.js';
import { param, setParams, href } from '../router.js';
import { can } from '../session.js';
import { count, plural, shortId } from '../format.js';
import { Button, EmptyState, Loaded, PageHead, Segments } from '../components/basics.js';
import { bulk } from '../components/Operations.js';
import { Sparkline } from '../components/Sparkline.js';
import { StatusBadge } from '../components/Status.js';
import { Text } from '../components/Text.js';
import { Time } from '../components/Time.js';

export default function Errors() {
  const status = param('status');
  const type = param('type');
  const wanted = param('group');
  const query = search({ status, type });
  const errors = useResource(`/errors${query ? `?${query}` : ''}`, { every: 10, follow: ({ event }) => event === 'job:failed' || event === 'job:retrying', gap: 3000 });
  const groups = errors.data ? errors.data.groups : [];
  useEffect(() => {
    const found = wanted && document.getElementById(`group-${wanted}`);
    if (found) found.scrollIntoView({ block: 'center' });
  }, [wanted, groups.length > 0]);
  const { looked_at: looked, complete, since } = errors.data || {};
  const note = errors.data && html`${complete ? `All ${plural(looked, 'job')} with errors` : `The newest ${plural(looked, 'job')} with errors`}${since && html`, since <${Time} at=${since} exact />`}`;
  return html`<${PageHead} title="Errors" note=${note || ' '}>
      ${type && html`<button type="button" class="chip" onClick=${() => setParams({ type: '' })} aria-label="Remove the filter by task">type: <${Text} value=${type} /> ×</button>`}
      <${Segments} label="Status" value=${status} options=${[['', 'All'], ['failed', 'Failed'], ['retrying', 'Retrying']]} onChange=${(value) => setParams({ status: value })} /><//>
    <${Loaded} from=${errors} lines=${10}>${(data) => (data.groups.length
      ? html`<div class="groups">${data.groups.map((group) => html`<${Group} key=${group.id} group=${group} chosen=${group.id === wanted} />`)}</div>`
      : html`<section class="panel" aria-label="No errors"><${EmptyState} icon="check" title="No errors"><p>No job has failed, or waits to be tried again.</p><//></section>`)}<//>`;
}

function Group({ group, chosen }) {
  const name = `${group.exception}: ${group.message}`;
  const run = (action) => () => bulk(action, { filter: { error_group: group.id } }, name);
  return html`<article class=${`panel group ${chosen ? 'chosen' : ''}`} id=${`group-${group.id}`} aria-label=${group.exception}>
    <div><h2><${Text} value=${group.exception} /> <span><${Text} value=${group.message} /></span></h2>
      <div class="group-facts">${group.frame && html`<code><${Text} value=${group.frame} /></code>`}
        <span>first <${Time} at=${group.first_at} /></span><span>last <${Time} at=${group.last_at} /></span>
        ${Object.entries(group.statuses).filter(([, number]) => number).map(([status, number]) => html`<span class="row" key=${status}><${StatusBadge} status=${status} quiet /><span class="num">${count(number)}</span></span>`)}</div></div>
    <div class="group-side"><span class="group-count">${count(group.count)}<span class="sr"> times</span></span>
      <${Sparkline} values=${group.sparkline} label=${`${group.exception} over time`} tone="bad" bars width=${150} height=${30} /></div>
    ${group.sample_error && group.sample_error !== name && html`<p class="group-sample" tabindex="0"><${Text} value=${group.sample_error} /></p>`}
    <div class="group-foot"><div class="row">${group.types.map((type) => html`<a class="chip" key=${type} href=${href(`/jobs?q=${encodeURIComponent(`type:${type}`)}&status=failed`)}><${Text} value=${type} /></a>`)}
        ${group.sample_ids.map((id) => html`<a class="mono sample" key=${id} href=${href(`/jobs/${id}`)}>…${shortId(id)}</a>`)}</div>
      <span class="spacer"></span>
      ${can('jobs.operate') && html`<${Button} icon="retry" onClick=${run('retry')}>Retry all<//>`}
      ${can('jobs.delete') && html`<${Button} icon="trash" kind="bad" onClick=${run('delete')}>Delete all<//>`}</div>
  </article>`;
}
