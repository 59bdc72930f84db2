import type { GraphDocument } from "./document";

/** A small module for tests: an entry with a fusion and a loop, a scope in the fusion, and a reducer that nobody calls. */
export function smallDocument(): GraphDocument {
  // 0 p0, 1 p1, 2 fusion.1 (calls 1), 3 while.2 (calls 2 and 3), 4 tuple; 5.. inside of the computations
  return {
    version: 1,
    kind: "hlo",
    name: "small",
    entry: 0,
    nodes: {
      id: ["p0", "p1", "fusion.1", "while.2", "tuple.3", "mul.5", "add.6", "less.7", "dot.8", "max.9"],
      op: ["parameter", "parameter", "fusion", "while", "tuple", "multiply", "add", "compare", "dot", "maximum"],
      name: ["p0", "p1", "fusion.1", "while.2", "tuple.3", "mul.5", "add.6", "less.7", "dot.8", "max.9"],
      group: [0, 0, 0, 0, 0, 1, 1, 2, 3, 4],
      shape: ["f32[4]", "f32[4]", "f32[4]", "(f32[4])", "(f32[4])", "f32[4]", "f32[4]", "pred[]", "f32[4]", "f32[]"],
      bytes: [16, 16, 16, 16, 16, 16, 16, 1, 16, 4],
      flops: [0, 0, 8, 0, 0, 4, 4, 1, 32, 1],
    },
    edges: { source: [0, 1, 2, 3, 5, 0], target: [2, 2, 3, 4, 6, 4], sourcePort: [0, 0, 0, 0, 0, 0], targetPort: [0, 1, 0, 0, 0, 1] },
    groups: {
      id: ["main", "fused", "cond", "body", "reducer"],
      name: ["main", "fused", "cond", "body", "reducer"],
      parent: [-1, 0, 0, 0, -1],
      kind: ["entry", "fusion", "condition", "body", "computation"],
      caller: [-1, 2, 3, 3, -1],
    },
  };
}

/** A chain of `count` nodes in one group, each also read `skip` nodes later. */
export function chainDocument(count: number, skip: number): GraphDocument {
  const source: number[] = [];
  const target: number[] = [];
  for (let node = 0; node + 1 < count; node++) {
    source.push(node);
    target.push(node + 1);
    if (node + skip < count && node % 3 === 0) {
      source.push(node);
      target.push(node + skip);
    }
  }
  const names = Array.from({ length: count }, (_, i) => `add.${i}`);
  return {
    version: 1,
    kind: "hlo",
    name: "chain",
    entry: 0,
    nodes: {
      id: names,
      op: names.map((_, i) => (i % 2 ? "add" : "dot")),
      name: names,
      group: names.map(() => 0),
      shape: names.map(() => "f32[8,8]"),
      bytes: names.map(() => 256),
      flops: names.map(() => 64),
    },
    edges: { source, target, sourcePort: source.map(() => 0), targetPort: source.map(() => 0) },
    groups: { id: ["main"], name: ["main"], parent: [-1], kind: ["entry"], caller: [-1] },
  };
}
