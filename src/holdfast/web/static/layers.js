/**
 * Where the jobs of a workflow stand in its picture: layers from left to right, each job right of all that it
 * waits for; within a layer, near its parents. Pure. Long edges get a place in each layer that they pass.
 */
export const BOX = { width: 168, height: 44, across: 64, down: 14, beside: 20 };
export const ROWS = 14; // a taller layer stands in several columns
const SWEEPS = 4;

/** The layer of each id: one more than the highest of its parents. Edges that would close a circle count for nothing. */
export function ranks(ids, edges) {
  const parents = new Map(ids.map((id) => [id, []]));
  for (const { child, parent } of edges) if (parents.has(child) && parents.has(parent)) parents.get(child).push(parent);
  const found = new Map();
  const open = new Set();
  for (const start of ids) {
    const path = [start];
    while (path.length) {
      const id = path.at(-1);
      if (found.has(id)) { path.pop(); continue; }
      open.add(id);
      const next = parents.get(id).find((one) => !found.has(one) && !open.has(one));
      if (next !== undefined) { path.push(next); continue; }
      found.set(id, 1 + Math.max(-1, ...parents.get(id).map((one) => found.get(one) ?? -1)));
      open.delete(id);
      path.pop();
    }
  }
  return found;
}

/** Layers of ids and of places ("parent>child@2") that long edges pass; and the links between neighbours. */
function layered(ids, edges, rank) {
  const layers = [];
  const put = (layer, id) => { (layers[layer] ||= []).push(id); };
  for (const id of ids) put(rank.get(id), id);
  const links = [];
  const chains = [];
  for (const edge of edges) {
    const from = rank.get(edge.parent);
    const to = rank.get(edge.child);
    if (from === undefined || to === undefined || to <= from) continue;
    const chain = [edge.parent];
    for (let layer = from + 1; layer < to; layer += 1) {
      const place = `${edge.parent}>${edge.child}@${layer}`;
      put(layer, place);
      chain.push(place);
    }
    chain.push(edge.child);
    for (let index = 1; index < chain.length; index += 1) links.push([chain[index - 1], chain[index]]);
    chains.push({ ...edge, chain });
  }
  return { layers, links, chains };
}

function neighbours(links, side) {
  const found = new Map();
  for (const link of links) {
    const key = link[side];
    if (!found.has(key)) found.set(key, []);
    found.get(key).push(link[1 - side]);
  }
  return found;
}

/** Sorts each layer by where its neighbours stand, there and back a few times: fewer edges cross. */
function untangle(layers, links) {
  const before = neighbours(links, 1);
  const behind = neighbours(links, 0);
  for (let sweep = 0; sweep < SWEEPS; sweep += 1) {
    const isForth = sweep % 2 === 0;
    const order = layers.map((_, index) => (isForth ? index : layers.length - 1 - index)).slice(1);
    for (const at of order) {
      const place = new Map(layers[at + (isForth ? -1 : 1)].map((id, index) => [id, index]));
      const near = isForth ? before : behind;
      const weight = new Map(layers[at].map((id, index) => {
        const list = (near.get(id) || []).map((one) => place.get(one)).filter((one) => one !== undefined);
        return [id, list.length ? list.reduce((sum, one) => sum + one, 0) / list.length : index];
      }));
      layers[at].sort((a, b) => weight.get(a) - weight.get(b));
    }
  }
}

const passes = (id) => id.includes('@') && id.includes('>');

/** {nodes: [{id, x, y}], edges: [{...edge, points: [[x, y], ...]}], width, height}. */
export function layout(ids, edges) {
  if (!ids.length) return { nodes: [], edges: [], width: 0, height: 0 };
  const rank = ranks(ids, edges);
  const { layers, links, chains } = layered(ids, edges, rank);
  untangle(layers, links);
  const columns = layers.map(folded);
  const heights = columns.map((list) => Math.max(...list.map(tallness)));
  const height = Math.max(...heights);
  const at = new Map();
  let x = 0;
  columns.forEach((list) => {
    for (const column of list) {
      let y = (height - tallness(column)) / 2;
      for (const id of column) {
        at.set(id, { x, y });
        y += tall(id);
      }
      x += BOX.width + BOX.beside;
    }
    x += BOX.across - BOX.beside;
  });
  return {
    nodes: ids.map((id) => ({ id, ...at.get(id) })),
    edges: chains.map(({ chain, ...edge }) => ({ ...edge, points: points(chain, at) })),
    width: x - BOX.across,
    height,
  };
}

const tall = (id) => (passes(id) ? BOX.down : BOX.height + BOX.down);
const tallness = (column) => column.reduce((sum, id) => sum + tall(id), -BOX.down);

/** Columns of about the same length. */
function folded(layer) {
  const count = Math.ceil(layer.length / ROWS);
  const length = Math.ceil(layer.length / count);
  return Array.from({ length: count }, (_, index) => layer.slice(index * length, (index + 1) * length)).filter((column) => column.length);
}

function points(chain, at) {
  return chain.flatMap((id, index) => {
    const { x, y } = at.get(id);
    if (index === 0) return [[x + BOX.width, y + BOX.height / 2]];
    if (index === chain.length - 1) return [[x, y + BOX.height / 2]];
    return [[x, y], [x + BOX.width, y]];
  });
}

/** A smooth line through the points, level at each of them. */
export function curve(list) {
  return list.map(([x, y], index) => {
    if (index === 0) return `M${x} ${y}`;
    const [px, py] = list[index - 1];
    if (py === y) return `L${x} ${y}`;
    const middle = (px + x) / 2;
    return `C${middle} ${py} ${middle} ${y} ${x} ${y}`;
  }).join('');
}

/** The jobs that decided how long it took: from the one that ended last, back through who ended last before it. */
export function critical(jobs, edges) {
  const byId = new Map(jobs.map((job) => [job.id, job]));
  const ended = jobs.filter((job) => job.completed_at && job.started_at);
  const later = (a, b) => (!a || b.completed_at > a.completed_at ? b : a);
  const path = [];
  let at = ended.reduce(later, null);
  while (at && !path.includes(at.id)) {
    path.push(at.id);
    const { id } = at;
    at = edges.filter((edge) => edge.child === id).map((edge) => byId.get(edge.parent)).filter((job) => job && job.completed_at).reduce(later, null);
  }
  return path.reverse();
}
