import type { GraphModel } from "../graph/document";
import type { OpenBoxes } from "../graph/groups";
import { LayoutCancelled, type LayoutEngine, type LayoutInput, type LayoutResult } from "./types";

/**
 * What is drawn, in absolute scene units. A box is a node (`id < nodeCount`) or a scope (`id - nodeCount` is its
 * group). Boxes come outermost first, so drawing them in order is right.
 */
export interface Scene {
  count: number;
  id: Int32Array;
  x: Float64Array;
  y: Float64Array;
  width: Float64Array;
  height: Float64Array;
  depth: Uint8Array;
  /** 0: nothing inside; 1: closed; 2: open. */
  state: Uint8Array;
  edgeCount: number;
  /** Positions in the columns above. */
  edgeSource: Uint32Array;
  edgeTarget: Uint32Array;
  route: Uint32Array;
  points: Float64Array;
  totalWidth: number;
  totalHeight: number;
  /** Position by box id, -1 where the box is not shown. */
  placeOf: Int32Array;
}

export const PLAIN = 0;
export const CLOSED = 1;
export const OPEN = 2;

export const NODE_HEIGHT = 44;
export const HEADER = 32;
const PADDING = 16;
const INNER_GAP = 32;
const ROOT_GAP = 64;

/** Pictures with more boxes than this are laid out by the fast engine alone. */
const HURRY_ABOVE = 500;

/** Width of a closed box from its texts; the drawing uses a fixed-pitch face, so characters are enough. */
export function boxWidth(name: string, second: string, callable: boolean): number {
  const text = Math.max(name.length * 7.3, Math.min(second.length, 34) * 6.5);
  return Math.round(Math.min(264, Math.max(88, text + 26 + (callable ? 24 : 0))));
}

interface Placed {
  boxes: number[];
  layout: LayoutResult;
  source: Uint32Array;
  target: Uint32Array;
  width: Float64Array;
  height: Float64Array;
}

/** Lays out what is open, group by group; a group is laid out again only when a box in it has changed its size. */
export class SceneBuilder {
  private readonly cache = new Map<number, { key: string; placed: Placed }>();
  private readonly former = new Map<number, Placed>();

  constructor(
    private readonly model: GraphModel,
    private readonly engine: LayoutEngine,
  ) {}

  async build(open: OpenBoxes, signal: AbortSignal, onProgress: (fraction: number) => void = () => undefined): Promise<Scene> {
    const { model } = this;
    const groups: number[] = [];
    const shown = new Set<number>();
    const visit = (group: number) => {
      // A computation with several callers is shown in the first open one only.
      if (shown.has(group)) return;
      shown.add(group);
      for (const box of model.boxesOf(group)) if (open.has(box)) for (const inner of model.groupsInside(box)) visit(inner);
      groups.push(group);
    };
    model.roots.forEach((root, i) => {
      if (i === 0 || open.has(model.nodeCount + root)) visit(root);
    });
    const total = groups.reduce((sum, group) => sum + model.membersOf(group).length, 1);
    const hurried = total > HURRY_ABOVE;
    const placed = new Map<number, Placed>();
    let done = 0;
    for (const group of groups) {
      const share = model.membersOf(group).length / total;
      placed.set(group, await this.place(group, open, placed, hurried, signal, (part) => onProgress(done + part * share)));
      done += share;
    }
    if (signal.aborted) throw new LayoutCancelled();
    return flatten(model, open, placed);
  }

  private async place(
    group: number,
    open: OpenBoxes,
    inner: Map<number, Placed>,
    hurried: boolean,
    signal: AbortSignal,
    onProgress: (fraction: number) => void,
  ): Promise<Placed> {
    const { model } = this;
    const boxes = model.boxesOf(group);
    const width = new Float64Array(boxes.length);
    const height = new Float64Array(boxes.length);
    let key = "";
    const local = new Map<number, number>();
    boxes.forEach((box, i) => {
      local.set(box, i);
      const inside = Array.from(model.groupsInside(box)).filter((called) => inner.has(called));
      if (open.has(box) && inside.length > 0) {
        const size = containerSize(inside, inner, boxName(model, box));
        width[i] = size.width;
        height[i] = size.height;
        key += `${box}:${size.width}x${size.height};`;
      } else {
        width[i] = boxWidth(boxName(model, box), boxSubtitle(model, box), model.groupsInside(box).length > 0);
        height[i] = NODE_HEIGHT;
      }
    });
    const known = this.cache.get(group);
    if (known?.key === key) return known.placed;
    const source: number[] = [];
    const target: number[] = [];
    const pairs = new Set<number>();
    for (const edge of model.edgesOf(group)) {
      const from = local.get(model.edgeFrom[edge]!)!;
      const to = local.get(model.edgeTo[edge]!)!;
      // Many edges between two boxes are one line.
      const pair = from * boxes.length + to;
      if (pairs.has(pair)) continue;
      pairs.add(pair);
      source.push(from);
      target.push(to);
    }
    const input: LayoutInput = { width, height, source: Uint32Array.from(source), target: Uint32Array.from(target), hurried };
    const before = this.former.get(group);
    if (before) input.hint = before.layout.x.map((x, i) => x + before.width[i]! / 2);
    const layout = await this.engine.layout(input, signal, onProgress);
    const result = { boxes, layout, source: input.source, target: input.target, width, height };
    this.cache.set(group, { key, placed: result });
    // Hints always come from the first picture, so that opening and closing a box ends where it began.
    if (!before) this.former.set(group, result);
    return result;
  }
}

function containerSize(calls: Iterable<number>, inner: Map<number, Placed>, name: string): { width: number; height: number } {
  let width = PADDING;
  let height = 0;
  for (const group of calls) {
    const { layout } = inner.get(group)!;
    width += layout.width + INNER_GAP;
    height = Math.max(height, layout.height);
  }
  width += PADDING - INNER_GAP;
  return { width: Math.ceil(Math.max(width, boxWidth(name, "", true))), height: Math.ceil(height + HEADER + 2 * PADDING) };
}

function flatten(model: GraphModel, open: OpenBoxes, placed: Map<number, Placed>): Scene {
  const id: number[] = [];
  const x: number[] = [];
  const y: number[] = [];
  const width: number[] = [];
  const height: number[] = [];
  const depth: number[] = [];
  const state: number[] = [];
  const edgeSource: number[] = [];
  const edgeTarget: number[] = [];
  const route: number[] = [0];
  const points: number[] = [];
  const placeOf = new Int32Array(model.nodeCount + model.groupCount).fill(-1);
  const add = (box: number, left: number, top: number, w: number, h: number, level: number, kind: number) => {
    placeOf[box] = id.length;
    id.push(box);
    x.push(left);
    y.push(top);
    width.push(w);
    height.push(h);
    depth.push(level);
    state.push(kind);
  };
  const drawn = new Set<number>();
  const put = (group: number, left: number, top: number, level: number) => {
    drawn.add(group);
    const { boxes, layout, source, target, width: w, height: h } = placed.get(group)!;
    const containers: { i: number; inside: number[] }[] = [];
    const first = id.length;
    boxes.forEach((box, i) => {
      const groups = Array.from(model.groupsInside(box));
      const inside = open.has(box) ? groups.filter((called) => placed.has(called) && !drawn.has(called)) : [];
      const kind = inside.length > 0 ? OPEN : groups.length > 0 ? CLOSED : PLAIN;
      add(box, left + layout.x[i]!, top + layout.y[i]!, w[i]!, h[i]!, level, kind);
      if (inside.length > 0) containers.push({ i, inside });
    });
    for (let edge = 0; edge < source.length; edge++) {
      edgeSource.push(first + source[edge]!);
      edgeTarget.push(first + target[edge]!);
      for (let k = layout.route[edge]!; k < layout.route[edge + 1]!; k++) points.push(left + layout.points[2 * k]!, top + layout.points[2 * k + 1]!);
      route.push(points.length / 2);
    }
    for (const { i, inside } of containers) {
      let inner = left + layout.x[i]! + PADDING;
      for (const called of inside) {
        put(called, inner, top + layout.y[i]! + HEADER + PADDING, level + 1);
        inner += placed.get(called)!.layout.width + INNER_GAP;
      }
    }
  };
  let right = 0;
  let bottom = 0;
  model.roots.forEach((root, i) => {
    if (i === 0) {
      put(root, 0, 0, 0);
      right = placed.get(root)!.layout.width;
      bottom = placed.get(root)!.layout.height;
    }
  });
  // Computations that no instruction calls stand in rows under the entry.
  let left = 0;
  let top = bottom + ROOT_GAP;
  let rowHeight = 0;
  for (const root of model.roots.slice(1)) {
    const box = model.nodeCount + root;
    const shown = placed.get(root);
    const size = shown
      ? containerSize([root], placed, model.groupName[root]!)
      : { width: boxWidth(boxName(model, box), boxSubtitle(model, box), true), height: NODE_HEIGHT };
    if (left > 0 && left + size.width > Math.max(right, 1600)) {
      left = 0;
      top += rowHeight + PADDING;
      rowHeight = 0;
    }
    add(box, left, top, size.width, size.height, 0, shown ? OPEN : CLOSED);
    if (shown) put(root, left + PADDING, top + HEADER + PADDING, 1);
    left += size.width + PADDING;
    rowHeight = Math.max(rowHeight, size.height);
    right = Math.max(right, left);
    bottom = top + rowHeight;
  }
  return {
    count: id.length,
    id: Int32Array.from(id),
    x: Float64Array.from(x),
    y: Float64Array.from(y),
    width: Float64Array.from(width),
    height: Float64Array.from(height),
    depth: Uint8Array.from(depth),
    state: Uint8Array.from(state),
    edgeCount: edgeSource.length,
    edgeSource: Uint32Array.from(edgeSource),
    edgeTarget: Uint32Array.from(edgeTarget),
    route: Uint32Array.from(route),
    points: Float64Array.from(points),
    totalWidth: right,
    totalHeight: bottom,
    placeOf,
  };
}

export function boxName(model: GraphModel, box: number): string {
  return box >= model.nodeCount ? model.groupName[box - model.nodeCount]! : model.nodeName[box]!;
}

/** Second line of a box: opcode and shape, or what a scope holds. */
export function boxSubtitle(model: GraphModel, box: number): string {
  if (box < model.nodeCount) return `${model.op[box]!} ${model.shape[box]!}`;
  const count = model.instructionCount(box - model.nodeCount);
  return `${model.groupKind[box - model.nodeCount]!}, ${count} op${count === 1 ? "" : "s"}`;
}
