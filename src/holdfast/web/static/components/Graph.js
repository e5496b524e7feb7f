/** A workflow as a picture of who waits for whom: dragged, zoomed by the wheel, walked through by Tab. */
import { html, useEffect, useMemo, useRef, useState } from '../lib.js';
import { go, href } from '../router.js';
import { BOX, curve, layout } from '../layers.js';
import { duration, secondsBetween, visible } from '../format.js';
import { IconButton } from './basics.js';
import { STATUSES, StatusBadge } from './Status.js';
import { iconPath } from './icons.js';

const EDGE = 24;
const ZOOM = { least: 0.15, readable: 0.5, most: 2 };
const within = (value, low, high) => Math.min(high, Math.max(low, value));

export function Graph({ jobs, edges, path = [] }) {
  const shape = jobs.map((job) => job.id).join() + edges.length;
  const picture = useMemo(() => layout(jobs.map((job) => job.id), edges), [shape]);
  const box = useRef();
  const [view, setView] = useState(null);
  const [size, setSize] = useState(null);
  useEffect(() => {
    const element = box.current;
    const watch = new ResizeObserver(() => setSize({ width: element.clientWidth, height: element.clientHeight }));
    watch.observe(element);
    return () => watch.disconnect();
  }, []);
  const fitted = size && fit(picture, size);
  const shown = view || fitted || { x: EDGE, y: EDGE, scale: 1 };
  const zoom = (factor, at) => setView(zoomed(shown, factor, at || { x: size.width / 2, y: size.height / 2 }));
  useWheel(box, (event) => {
    const corner = box.current.getBoundingClientRect();
    zoom(Math.exp(-event.deltaY * 0.0015), { x: event.clientX - corner.left, y: event.clientY - corner.top });
  });
  const drag = useDrag((dx, dy) => setView((now) => { const from = now || shown; return { ...from, x: from.x + dx, y: from.y + dy }; }));
  const reveal = (node) => { if (size) setView(revealed(shown, node, size)); };
  const byId = new Map(jobs.map((job) => [job.id, job]));
  return html`<div class="graph"><div class="graph-box" ref=${box} style=${{ height: `${Math.round(within(picture.height + 2 * EDGE, 220, 560))}px` }} ...${drag}>
      <svg width="100%" height="100%" role="group" aria-label="The jobs of the workflow, from left to right">
        <g transform=${`translate(${shown.x} ${shown.y}) scale(${shown.scale})`}>
          ${picture.edges.map((edge) => html`<${Edge} key=${`${edge.parent}>${edge.child}`} edge=${edge} on=${path.includes(edge.parent) && path.includes(edge.child)} />`)}
          ${picture.nodes.map((node) => html`<${Node} key=${node.id} node=${node} job=${byId.get(node.id)} on=${path.includes(node.id)} reveal=${reveal} />`)}
        </g></svg></div>
    <div class="graph-tools"><${IconButton} icon="plus" label="Zoom in" onClick=${() => zoom(1.3)} /><${IconButton} icon="dash" label="Zoom out" onClick=${() => zoom(1 / 1.3)} />
      <${IconButton} icon="auto" label="Back to the beginning" onClick=${() => setView(null)} /></div>
    <${Legend} jobs=${jobs} hasPath=${path.length > 1} /></div>`;
}

function fit(picture, size) {
  const scale = within(Math.min((size.width - 2 * EDGE) / picture.width, (size.height - 2 * EDGE) / picture.height), ZOOM.readable, 1);
  return { scale, x: Math.max(EDGE, (size.width - picture.width * scale) / 2), y: Math.max(EDGE, (size.height - picture.height * scale) / 2) };
}

function zoomed(view, factor, at) {
  const scale = within(view.scale * factor, ZOOM.least, ZOOM.most);
  const by = scale / view.scale;
  return { scale, x: at.x - (at.x - view.x) * by, y: at.y - (at.y - view.y) * by };
}

/** Moves the picture so far that a node can be seen. */
function revealed(view, node, size) {
  const left = view.x + node.x * view.scale;
  const top = view.y + node.y * view.scale;
  const right = left + BOX.width * view.scale;
  const bottom = top + BOX.height * view.scale;
  const dx = left < 8 ? 8 - left : right > size.width - 8 ? size.width - 8 - right : 0;
  const dy = top < 8 ? 8 - top : bottom > size.height - 8 ? size.height - 8 - bottom : 0;
  return { ...view, x: view.x + dx, y: view.y + dy };
}

/** Listeners of Preact are passive for the wheel, and could not keep the page from scrolling. */
function useWheel(box, run) {
  const latest = useRef();
  latest.current = run;
  useEffect(() => {
    const wheel = (event) => { event.preventDefault(); latest.current(event); };
    const element = box.current;
    element.addEventListener('wheel', wheel, { passive: false });
    return () => element.removeEventListener('wheel', wheel);
  }, []);
}

/** A drag that went somewhere is no click on what it ended upon. */
function useDrag(move) {
  const from = useRef(null);
  const went = useRef(false);
  return {
    onPointerDown: (event) => { if (event.button === 0) { from.current = { x: event.clientX, y: event.clientY }; went.current = false; } },
    onPointerMove: (event) => {
      const last = from.current;
      if (!last) return;
      const dx = event.clientX - last.x;
      const dy = event.clientY - last.y;
      if (!went.current && Math.hypot(dx, dy) < 4) return;
      if (!went.current) event.currentTarget.setPointerCapture(event.pointerId);
      went.current = true;
      from.current = { x: event.clientX, y: event.clientY };
      move(dx, dy);
    },
    onPointerUp: () => { from.current = null; },
    onPointerCancel: () => { from.current = null; },
    onClickCapture: (event) => { if (went.current) { event.preventDefault(); event.stopPropagation(); went.current = false; } },
    onDragStart: (event) => event.preventDefault(),
  };
}

const Edge = ({ edge, on }) => html`<path class=${`edge edge-${edge.outcome || 'open'} ${on ? 'edge-on' : ''}`} d=${curve(edge.points)} />`;

function Node({ node, job, on, reveal }) {
  const to = `/jobs/${job.id}`;
  const name = visible(job.node || job.type);
  const took = secondsBetween(job.started_at, job.completed_at);
  const open = (event) => {
    if (event.metaKey || event.ctrlKey || event.shiftKey || event.button) return;
    event.preventDefault();
    go(to);
  };
  const note = job.status === 'running' && job.progress ? `${Math.floor(job.progress)} %` : took === null ? '' : duration(took);
  return html`<g transform=${`translate(${node.x} ${node.y})`}><title>${name}${job.node ? visible(` (${job.type})`) : ''}: ${job.status}</title>
    <a href=${href(to)} class=${`node tone-${job.status} ${on ? 'node-on' : ''}`} aria-label=${`${name} ${job.status}${note && ` · ${note}`}`} draggable="false" onClick=${open}
        onFocus=${(event) => { if (event.currentTarget.matches(':focus-visible')) reveal(node); }}>
      <rect width=${BOX.width} height=${BOX.height} rx="8" />
      <path class="node-sign" transform="translate(10 14)" d=${iconPath(job.status)} />
      <svg x="34" width=${BOX.width - 42} height=${BOX.height}><text y="19">${name}</text><text class="node-note" y="34"> ${job.status}${note && ` · ${note}`}</text></svg></a></g>`;
}

function Legend({ jobs, hasPath }) {
  const present = STATUSES.filter((status) => jobs.some((job) => job.status === status));
  return html`<ul class="graph-legend" aria-label="Legend">${present.map((status) => html`<li key=${status}><${StatusBadge} status=${status} quiet /></li>`)}
    <li class="faint"><svg width="26" height="8" aria-hidden="true"><path class="edge edge-completed" d="M0 4H26" /></svg>went well</li>
    <li class="faint"><svg width="26" height="8" aria-hidden="true"><path class="edge edge-open" d="M0 4H26" /></svg>still waited for</li>
    <li class="faint"><svg width="26" height="8" aria-hidden="true"><path class="edge edge-failed" d="M0 4H26" /></svg>did not</li>
    ${hasPath && html`<li class="faint"><svg width="26" height="8" aria-hidden="true"><path class="edge edge-on" d="M0 4H26" /></svg>what took longest</li>`}</ul>`;
}
