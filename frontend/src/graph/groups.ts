import type { GraphModel } from "./document";

/** Boxes that are shown with what is inside them: calling nodes, and scopes (`nodeCount + group`). Never changed in place. */
export type OpenBoxes = ReadonlySet<number>;

/** Open or close a box; closing forgets nothing of what is open inside it. */
export function toggle(open: OpenBoxes, box: number): OpenBoxes {
  const next = new Set(open);
  if (!next.delete(box)) next.add(box);
  return next;
}

/** Open what stands around a box, so that it can be seen. */
export function reveal(model: GraphModel, open: OpenBoxes, box: number): OpenBoxes {
  const missing = model.boxesAround(box).filter((outer) => !open.has(outer));
  return missing.length === 0 ? open : new Set([...open, ...missing]);
}

/** The box itself, or the outermost closed box that hides it. */
export function visibleStandIn(model: GraphModel, open: OpenBoxes, box: number): number {
  for (const outer of model.boxesAround(box)) if (!open.has(outer)) return outer;
  return box;
}

/** Everything, level by level, while the boxes shown stay within the limit. */
export function openAll(model: GraphModel, limit: number): OpenBoxes {
  return openLevels(model, limit, () => true);
}

/** What is open at first: scopes and blocks, but not parameters nor called computations, up to an editing-size picture. */
export function openAtFirst(model: GraphModel, limit: number): OpenBoxes {
  return openLevels(model, limit, (box) => box >= model.nodeCount && model.groupKind[box - model.nodeCount] !== "parameters");
}

function openLevels(model: GraphModel, limit: number, wanted: (box: number) => boolean): OpenBoxes {
  const open = new Set<number>();
  const [entry, ...others] = model.roots;
  if (entry === undefined) return open;
  let level = model.boxesOf(entry);
  let shown = level.length + others.length;
  if (others.length > 0) level = level.concat(others.map((group) => model.nodeCount + group));
  while (level.length > 0) {
    const boxes = level.filter((box) => model.groupsInside(box).length > 0 && wanted(box));
    const groups = boxes.flatMap((box) => Array.from(model.groupsInside(box)));
    for (const group of groups) shown += model.membersOf(group).length + model.subgroupsOf(group).length;
    // A level is opened as a whole or not at all: half a level would look like a difference between its boxes.
    if (shown > limit) break;
    for (const box of boxes) open.add(box);
    level = groups.flatMap((group) => model.boxesOf(group));
  }
  return open;
}
