import { rows as group } from "../graph/document";
import { LayoutCancelled, type LayoutInput, type LayoutOptions, type LayoutResult } from "./types";

/** Horizontal and vertical room between boxes. */
export const GAP_X = 24;
export const GAP_Y = 36;
const COLUMN_GAP = 96;
/** A layer wider than this is broken into several rows. */
const MAX_ROW = 3200;
/** A layout is folded into columns when it is this much higher than wide. */
const FOLD_ABOVE = 1.8;
const ASPECT = 1.5;

/**
 * Lay out in near-linear time: longest-path layers, a few barycentre sweeps, and an exact placement of each row.
 *
 * There are no dummy nodes for long edges (they are what makes library layouts slow), so long edges pass behind boxes.
 * Equal input gives an equal picture. Cycles are tolerated: an edge that closes one is left out of the layering.
 */
export function layered(input: LayoutInput, options: LayoutOptions = {}): LayoutResult {
  const { width, height, source, target } = input;
  const count = width.length;
  const progress = (fraction: number) => {
    if (options.cancelled?.()) throw new LayoutCancelled();
    options.onProgress?.(fraction);
  };
  const outgoing = group(source, count);
  const incoming = group(target, count);
  progress(0);
  const layer = assignLayers(count, target, outgoing, incoming);
  progress(0.15);
  const layers = orderLayers(layer, input, outgoing, incoming, progress);
  const lines = layers.flatMap((nodes) => breakRow(nodes, width));
  const centre = placeRows(lines, input, outgoing, incoming, progress);
  const { x, y } = stack(lines, centre, width, height);
  const result = connect(input, x, y);
  progress(1);
  return result;
}

type Rows = ReturnType<typeof group>;

function assignLayers(count: number, target: Uint32Array, outgoing: Rows, incoming: Rows): Int32Array {
  const layer = new Int32Array(count);
  const missing = new Int32Array(count);
  for (let i = 0; i < count; i++) missing[i] = incoming.start[i + 1]! - incoming.start[i]!;
  const done = new Uint8Array(count);
  const queue = new Int32Array(count);
  let tail = 0;
  for (let i = 0; i < count; i++) if (missing[i] === 0) queue[tail++] = i;
  let cursor = 0;
  for (let head = 0; head < count; head++) {
    if (head === tail) {
      // Only cycles are left: go on at the first node in document order.
      while (done[cursor] || missing[cursor] === 0) cursor++;
      missing[cursor] = 0;
      queue[tail++] = cursor;
    }
    const node = queue[head]!;
    done[node] = 1;
    for (let k = outgoing.start[node]!; k < outgoing.start[node + 1]!; k++) {
      const next = target[outgoing.items[k]!]!;
      if (done[next] || missing[next] === 0) continue;
      layer[next] = Math.max(layer[next]!, layer[node]! + 1);
      if (--missing[next]! === 0) queue[tail++] = next;
    }
  }
  // Parameters and constants go right above their first reader, so that the first layer does not hold them all.
  for (let node = 0; node < count; node++) {
    if (incoming.start[node] !== incoming.start[node + 1]) continue;
    let first = Infinity;
    for (let k = outgoing.start[node]!; k < outgoing.start[node + 1]!; k++) {
      const reader = target[outgoing.items[k]!]!;
      if (reader !== node) first = Math.min(first, layer[reader]!);
    }
    if (first !== Infinity) layer[node] = Math.max(0, first - 1);
  }
  return layer;
}

function orderLayers(
  layer: Int32Array,
  { source, target, hint }: LayoutInput,
  outgoing: Rows,
  incoming: Rows,
  progress: (fraction: number) => void,
): number[][] {
  const depth = layer.reduce((most, value) => Math.max(most, value), -1) + 1;
  const layers: number[][] = Array.from({ length: depth }, () => []);
  for (let node = 0; node < layer.length; node++) layers[layer[node]!]!.push(node);
  const place = new Float64Array(layer.length);
  const number = (nodes: number[]) => nodes.forEach((node, i) => (place[node] = (i + 0.5) / nodes.length));
  if (hint) {
    for (const nodes of layers) {
      nodes.sort((a, b) => (hint[a]! - hint[b]!) || a - b);
    }
  }
  layers.forEach(number);
  const key = new Float64Array(layer.length);
  const sweep = (nodes: number[], rows: Rows, end: Uint32Array) => {
    for (const node of nodes) {
      const from = rows.start[node]!;
      const to = rows.start[node + 1]!;
      let sum = 0;
      for (let k = from; k < to; k++) sum += place[end[rows.items[k]!]!]!;
      key[node] = to > from ? sum / (to - from) : place[node]!;
    }
    nodes.sort((a, b) => key[a]! - key[b]! || place[a]! - place[b]!);
    number(nodes);
  };
  const passes = hint ? 1 : 3;
  for (let pass = 0; pass < passes; pass++) {
    for (let i = 1; i < depth; i++) sweep(layers[i]!, incoming, source);
    for (let i = depth - 2; i >= 0; i--) sweep(layers[i]!, outgoing, target);
    progress(0.15 + (0.35 * (pass + 1)) / passes);
  }
  return layers;
}

function breakRow(nodes: number[], width: Float64Array): number[][] {
  let total = 0;
  for (const node of nodes) total += width[node]! + GAP_X;
  if (total <= MAX_ROW) return [nodes];
  const limit = Math.max(MAX_ROW, Math.sqrt(total * 120));
  const lines: number[][] = [];
  let line: number[] = [];
  let used = 0;
  for (const node of nodes) {
    if (line.length > 0 && used + width[node]! > limit) {
      lines.push(line);
      line = [];
      used = 0;
    }
    line.push(node);
    used += width[node]! + GAP_X;
  }
  lines.push(line);
  return lines;
}

function placeRows(
  lines: number[][],
  { width, source, target }: LayoutInput,
  outgoing: Rows,
  incoming: Rows,
  progress: (fraction: number) => void,
): Float64Array {
  const centre = new Float64Array(width.length);
  for (const line of lines) {
    let x = -line.reduce((sum, node) => sum + width[node]! + GAP_X, -GAP_X) / 2;
    for (const node of line) {
      centre[node] = x + width[node]! / 2;
      x += width[node]! + GAP_X;
    }
  }
  const wish = new Float64Array(width.length);
  const settle = (line: number[], rows: Rows, end: Uint32Array) => {
    for (const node of line) {
      const from = rows.start[node]!;
      const to = rows.start[node + 1]!;
      let sum = 0;
      for (let k = from; k < to; k++) sum += centre[end[rows.items[k]!]!]!;
      wish[node] = to > from ? sum / (to - from) : centre[node]!;
    }
    spread(line, wish, width, centre);
  };
  const passes = 3;
  for (let pass = 0; pass < passes; pass++) {
    for (const line of lines) settle(line, incoming, source);
    for (let i = lines.length - 1; i >= 0; i--) settle(lines[i]!, outgoing, target);
    progress(0.5 + (0.4 * (pass + 1)) / passes);
  }
  return centre;
}

/** Move a row's boxes as near to their wishes as order and gaps allow (least squares, by pooling neighbours). */
function spread(line: number[], wish: Float64Array, width: Float64Array, centre: Float64Array): void {
  const shift = new Float64Array(line.length);
  const mean = new Float64Array(line.length);
  const size = new Int32Array(line.length);
  let blocks = 0;
  let offset = 0;
  for (let i = 0; i < line.length; i++) {
    const node = line[i]!;
    if (i > 0) offset += width[line[i - 1]!]! / 2 + GAP_X + width[node]! / 2;
    shift[i] = offset;
    mean[blocks] = wish[node]! - offset;
    size[blocks] = 1;
    blocks++;
    while (blocks > 1 && mean[blocks - 2]! >= mean[blocks - 1]!) {
      const left = size[blocks - 2]!;
      const right = size[blocks - 1]!;
      mean[blocks - 2] = (mean[blocks - 2]! * left + mean[blocks - 1]! * right) / (left + right);
      size[blocks - 2] = left + right;
      blocks--;
    }
  }
  let i = 0;
  for (let block = 0; block < blocks; block++) {
    for (let k = 0; k < size[block]!; k++, i++) centre[line[i]!] = mean[block]! + shift[i]!;
  }
}

/** Rows downwards; a tall, thin stack continues in further columns like text, so that it fits a screen. */
function stack(lines: number[][], centre: Float64Array, width: Float64Array, height: Float64Array) {
  const x = new Float64Array(width.length);
  const y = new Float64Array(width.length);
  const lineHeight = lines.map((line) => line.reduce((most, node) => Math.max(most, height[node]!), 0) + GAP_Y);
  const total = lineHeight.reduce((sum, value) => sum + value, 0);
  let widest = 1;
  for (const line of lines) {
    const first = line[0]!;
    const last = line[line.length - 1]!;
    widest = Math.max(widest, centre[last]! - centre[first]! + (width[last]! + width[first]!) / 2);
  }
  const columns = total > FOLD_ABOVE * widest && lines.length > 12 ? Math.round(Math.sqrt((ASPECT * total) / widest)) : 1;
  const limit = total / Math.max(1, columns);
  let columnLeft = 0;
  let from = 0;
  while (from < lines.length) {
    let to = from;
    let used = 0;
    let left = Infinity;
    let right = -Infinity;
    while (to < lines.length && (to === from || columns === 1 || used + lineHeight[to]! <= limit * 1.05)) {
      for (const node of lines[to]!) {
        left = Math.min(left, centre[node]! - width[node]! / 2);
        right = Math.max(right, centre[node]! + width[node]! / 2);
      }
      used += lineHeight[to++]!;
    }
    let top = 0;
    for (let i = from; i < to; i++) {
      for (const node of lines[i]!) {
        x[node] = columnLeft + centre[node]! - width[node]! / 2 - left;
        y[node] = top + (lineHeight[i]! - GAP_Y - height[node]!) / 2;
      }
      top += lineHeight[i]!;
    }
    columnLeft += right - left + COLUMN_GAP;
    from = to;
  }
  return { x, y };
}

/** Edges as two points each, from the bottom of the source to the top of the target, spread over the box's width. */
function connect({ width, height, source, target }: LayoutInput, x: Float64Array, y: Float64Array): LayoutResult {
  const count = width.length;
  const edges = source.length;
  const inputs = new Int32Array(count);
  for (let i = 0; i < edges; i++) inputs[target[i]!]!++;
  const used = new Int32Array(count);
  const route = new Uint32Array(edges + 1);
  const points = new Float64Array(edges * 4);
  for (let i = 0; i < edges; i++) {
    const from = source[i]!;
    const to = target[i]!;
    route[i + 1] = 2 * (i + 1);
    points[4 * i] = x[from]! + width[from]! / 2;
    points[4 * i + 1] = y[from]! + height[from]!;
    points[4 * i + 2] = x[to]! + (width[to]! * ++used[to]!) / (inputs[to]! + 1);
    points[4 * i + 3] = y[to]!;
  }
  let right = 0;
  let bottom = 0;
  for (let i = 0; i < count; i++) {
    right = Math.max(right, x[i]! + width[i]!);
    bottom = Math.max(bottom, y[i]! + height[i]!);
  }
  return { x, y, width: right, height: bottom, route, points };
}
