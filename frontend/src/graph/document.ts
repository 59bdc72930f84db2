/** The graph document (version 1) as the server sends it, and the index that every view of it works on. */

export interface GraphDocument {
  version: number;
  kind: string;
  name: string;
  /** Index of the entry computation's group. */
  entry: number;
  nodes: {
    id: (string | number)[];
    op: string[];
    name: string[];
    /** Index into `groups`. */
    group: number[];
    shape: string[];
    bytes: number[];
    flops: number[];
  };
  /** `source` and `target` are indices into `nodes`. */
  edges: { source: number[]; target: number[]; sourcePort: number[]; targetPort: number[] };
  groups: {
    id: (string | number)[];
    name: string[];
    /** Index into `groups`, -1 for a root. */
    parent: number[];
    kind: string[];
    /** Index of the node that calls the computation, -1 where there is none. */
    caller: number[];
  };
}

/** Neighbours in compressed rows: those of `i` are `items[start[i] .. start[i + 1]]`. */
export interface Rows {
  start: Uint32Array;
  items: Uint32Array;
}

export class DocumentError extends Error {}

/** A checked document with its adjacency; nothing in it changes after it was made. */
export class GraphModel {
  readonly name: string;
  readonly nodeCount: number;
  readonly groupCount: number;
  readonly op: string[];
  readonly nodeName: string[];
  readonly shape: string[];
  readonly bytes: number[];
  readonly flops: number[];
  readonly group: Int32Array;
  readonly groupName: string[];
  readonly groupKind: string[];
  readonly groupParent: Int32Array;
  readonly groupCaller: Int32Array;
  readonly edgeSource: Uint32Array;
  readonly edgeTarget: Uint32Array;
  /** Edge indices by source and by target node. */
  readonly outgoing: Rows;
  readonly incoming: Rows;
  /** Node indices by group, in document order. */
  readonly members: Rows;
  /** Group indices by the node that calls them. */
  readonly calls: Rows;
  /** Scopes and blocks by the group that holds them; called computations are not among them. */
  readonly subgroups: Rows;
  /** Groups that lie in no other: the entry computation first. */
  readonly roots: number[];
  /** Each edge belongs to the innermost group that holds both ends: edge indices by that group. */
  readonly edgesIn: Rows;
  /** The boxes in that group that hold the edge's ends. */
  readonly edgeFrom: Uint32Array;
  readonly edgeTo: Uint32Array;
  private readonly byName = new Map<string, number>();

  constructor(document: GraphDocument) {
    if (document.version !== 1) throw new DocumentError(`graph document version ${document.version} is not known`);
    const { nodes, edges, groups } = document;
    const count = nodes.name.length;
    const groupCount = groups.name.length;
    for (const [column, values] of Object.entries(nodes)) {
      if (values.length !== count) throw new DocumentError(`nodes.${column} has ${values.length} entries, not ${count}`);
    }
    if (edges.source.length !== edges.target.length) throw new DocumentError("edges.source and edges.target differ in length");
    for (const end of [edges.source, edges.target]) {
      for (const node of end) if (!(node >= 0 && node < count)) throw new DocumentError(`an edge names node ${node}`);
    }
    for (const group of nodes.group) {
      if (!(group >= 0 && group < groupCount)) throw new DocumentError(`a node names group ${group}`);
    }
    this.name = document.name;
    this.nodeCount = count;
    this.groupCount = groupCount;
    this.op = nodes.op;
    this.nodeName = nodes.name;
    this.shape = nodes.shape;
    this.bytes = nodes.bytes;
    this.flops = nodes.flops;
    this.group = Int32Array.from(nodes.group);
    this.groupName = groups.name;
    this.groupKind = groups.kind;
    this.groupParent = Int32Array.from(groups.parent);
    this.groupCaller = Int32Array.from(groups.caller);
    this.edgeSource = Uint32Array.from(edges.source);
    this.edgeTarget = Uint32Array.from(edges.target);
    this.outgoing = rows(this.edgeSource, count);
    this.incoming = rows(this.edgeTarget, count);
    this.members = rows(this.group, groupCount);
    this.calls = rows(this.groupCaller, count);
    this.roots = [];
    for (let group = 0; group < groupCount; group++) {
      if (this.groupCaller[group]! < 0 && this.groupParent[group]! < 0) this.roots.push(group);
    }
    this.subgroups = rows(
      this.groupParent.map((parent, group) => (this.groupCaller[group]! < 0 ? parent : -1)),
      groupCount,
    );
    const depth = this.depths();
    this.edgeFrom = new Uint32Array(this.edgeSource.length);
    this.edgeTo = new Uint32Array(this.edgeSource.length);
    const holder = new Int32Array(this.edgeSource.length);
    for (let edge = 0; edge < holder.length; edge++) holder[edge] = this.lift(edge, depth);
    this.edgesIn = rows(holder, groupCount);
    for (let node = 0; node < count; node++) this.byName.set(nodes.name[node]!, node);
  }

  /** The node with this instruction name, or -1. */
  find(name: string): number {
    return this.byName.get(name) ?? -1;
  }

  /** Nodes whose results this node reads, each once, in operand order. */
  producers(node: number): number[] {
    return unique(this.incoming, node, this.edgeSource);
  }

  /** Nodes that read this node's result, each once. */
  consumers(node: number): number[] {
    return unique(this.outgoing, node, this.edgeTarget);
  }

  membersOf(group: number): Uint32Array {
    return slice(this.members, group);
  }

  calledBy(node: number): Uint32Array {
    return slice(this.calls, node);
  }

  subgroupsOf(group: number): Uint32Array {
    return slice(this.subgroups, group);
  }

  edgesOf(group: number): Uint32Array {
    return slice(this.edgesIn, group);
  }

  /** Boxes that a group holds: its nodes, then its scopes (`nodeCount + group`). */
  boxesOf(group: number): number[] {
    const boxes = Array.from(this.membersOf(group));
    for (const inner of this.subgroupsOf(group)) boxes.push(this.nodeCount + inner);
    return boxes;
  }

  /** Groups inside a box: what its node calls, or the scope itself. */
  groupsInside(box: number): ArrayLike<number> & Iterable<number> {
    return box >= this.nodeCount ? [box - this.nodeCount] : this.calledBy(box);
  }

  /** The box that shows a group when it is closed; -1 for the entry, which is always open. */
  boxOf(group: number): number {
    if (group === this.roots[0]) return -1;
    const caller = this.groupCaller[group]!;
    return caller >= 0 ? caller : this.nodeCount + group;
  }

  /** Boxes that must be open for this box to be seen, outermost first. */
  boxesAround(box: number): number[] {
    const around: number[] = [];
    let group = box >= this.nodeCount ? this.groupParent[box - this.nodeCount]! : this.group[box]!;
    // A call tree is acyclic, but the document comes from outside: the bound keeps a bad one from hanging the page.
    for (let depth = 0; depth < this.groupCount && group >= 0; depth++) {
      const outer = this.boxOf(group);
      if (outer < 0) break;
      around.push(outer);
      group = this.holderOf(group);
    }
    return around.reverse();
  }

  /** Instructions in a group and in its scopes, without what they call. */
  instructionCount(group: number): number {
    let total = 0;
    const stack = [group];
    for (let steps = 0, next = stack.pop(); next !== undefined && steps <= this.groupCount; steps++, next = stack.pop()) {
      total += this.membersOf(next).length;
      stack.push(...this.subgroupsOf(next));
    }
    return total;
  }

  private holderOf(group: number): number {
    const caller = this.groupCaller[group]!;
    return caller >= 0 ? this.group[caller]! : this.groupParent[group]!;
  }

  private depths(): Int32Array {
    const depth = new Int32Array(this.groupCount);
    for (let group = 0; group < this.groupCount; group++) {
      let outer = this.holderOf(group);
      while (outer >= 0 && depth[group]! <= this.groupCount) {
        depth[group]!++;
        outer = this.holderOf(outer);
      }
      if (depth[group]! > this.groupCount) throw new DocumentError(`group ${group} lies in itself`);
    }
    return depth;
  }

  /** Raise both ends of an edge to boxes of one group; returns that group, or -1 where there is none. */
  private lift(edge: number, depth: Int32Array): number {
    let from = this.edgeSource[edge]!;
    let to = this.edgeTarget[edge]!;
    let fromGroup = this.group[from]!;
    let toGroup = this.group[to]!;
    while (fromGroup !== toGroup) {
      const raiseFrom = depth[fromGroup]! >= depth[toGroup]!;
      const raiseTo = depth[toGroup]! >= depth[fromGroup]!;
      if (raiseFrom) {
        from = this.groupCaller[fromGroup]! >= 0 ? this.groupCaller[fromGroup]! : this.nodeCount + fromGroup;
        fromGroup = this.holderOf(fromGroup);
      }
      if (raiseTo) {
        to = this.groupCaller[toGroup]! >= 0 ? this.groupCaller[toGroup]! : this.nodeCount + toGroup;
        toGroup = this.holderOf(toGroup);
      }
      if (fromGroup < 0 || toGroup < 0) return -1;
    }
    this.edgeFrom[edge] = from;
    this.edgeTo[edge] = to;
    return from === to ? -1 : fromGroup;
  }
}

function slice(table: Rows, row: number): Uint32Array {
  return table.items.subarray(table.start[row]!, table.start[row + 1]!);
}

function unique(table: Rows, row: number, end: Uint32Array): number[] {
  const seen = new Set<number>();
  for (const edge of slice(table, row)) seen.add(end[edge]!);
  return [...seen];
}

/** Group the indices of `keys` by key, in order; negative keys are left out. */
export function rows(keys: ArrayLike<number>, count: number): Rows {
  const start = new Uint32Array(count + 1);
  let used = 0;
  for (let i = 0; i < keys.length; i++) {
    const key = keys[i]!;
    if (key >= 0) {
      start[key + 1]!++;
      used++;
    }
  }
  for (let i = 0; i < count; i++) start[i + 1]! += start[i]!;
  const items = new Uint32Array(used);
  const next = start.slice();
  for (let i = 0; i < keys.length; i++) {
    const key = keys[i]!;
    if (key >= 0) items[next[key]!++] = i;
  }
  return { start, items };
}
