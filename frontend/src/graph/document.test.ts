import { describe, expect, test } from "vitest";
import { DocumentError, GraphModel } from "./document";
import { openAll, openAtFirst, reveal, toggle, visibleStandIn } from "./groups";
import { searchNodes } from "./search";
import { smallDocument } from "./testGraph";

const model = new GraphModel(smallDocument());

describe("the graph model", () => {
  test("it finds producers in operand order and consumers, each once", () => {
    expect(model.producers(2)).toEqual([0, 1]);
    expect(model.consumers(0)).toEqual([2, 4]);
  });

  test("it knows members, callers and roots, the entry first", () => {
    expect([...model.membersOf(0)]).toEqual([0, 1, 2, 3, 4]);
    expect([...model.calledBy(3)]).toEqual([2, 3]);
    expect(model.roots).toEqual([0, 4]);
    expect(model.boxesAround(8)).toEqual([3]);
    expect(model.boxesAround(9)).toEqual([14]);
    expect(model.instructionCount(0)).toBe(5);
  });

  test("it finds a node by its name", () => {
    expect(model.find("dot.8")).toBe(8);
    expect(model.find("dot")).toBe(-1);
  });

  test("it refuses an edge to a node that is not there", () => {
    const broken = smallDocument();
    broken.edges.target[0] = 99;
    expect(() => new GraphModel(broken)).toThrow(DocumentError);
  });

  test("it refuses columns of different lengths and an unknown version", () => {
    const short = smallDocument();
    short.nodes.shape.pop();
    expect(() => new GraphModel(short)).toThrow(/nodes.shape has 9 entries, not 10/);
    expect(() => new GraphModel({ ...smallDocument(), version: 2 })).toThrow(/version 2/);
  });
});

describe("scopes", () => {
  // The two instructions of the fusion, and the parameters of the entry, in scopes of their own.
  const scoped = smallDocument();
  scoped.groups.name.push("inner", "parameters");
  scoped.groups.id.push("inner", "parameters");
  scoped.groups.parent.push(1, 0);
  scoped.groups.kind.push("scope", "parameters");
  scoped.groups.caller.push(-1, -1);
  scoped.nodes.group[6] = 5;
  scoped.nodes.group[0] = 6;
  scoped.nodes.group[1] = 6;
  const nested = new GraphModel(scoped);

  test("they are boxes of the group that holds them", () => {
    expect(nested.boxesOf(0)).toEqual([2, 3, 4, 16]);
    expect(nested.boxesOf(1)).toEqual([5, 15]);
    expect(nested.boxesAround(6)).toEqual([2, 15]);
    expect(nested.roots).toEqual([0, 4]);
  });

  test("an edge that crosses a border belongs to the group that holds both ends, between the boxes there", () => {
    const edges = [...nested.edgesOf(0)].map((edge) => [nested.edgeFrom[edge], nested.edgeTo[edge]]);
    expect(edges).toEqual([[16, 2], [16, 2], [2, 3], [3, 4], [16, 4]]);
    expect([...nested.edgesOf(1)].map((edge) => [nested.edgeFrom[edge], nested.edgeTo[edge]])).toEqual([[5, 15]]);
  });

  test("scopes are open at first, parameters and called computations are not", () => {
    expect([...openAtFirst(nested, 100)]).toEqual([14]);
    expect([...openAll(nested, 100)].sort((a, b) => a - b)).toEqual([2, 3, 14, 15, 16]);
  });

  test("a group that lies in itself is refused", () => {
    const broken = smallDocument();
    broken.groups.parent[4] = 4;
    expect(() => new GraphModel(broken)).toThrow(/lies in itself/);
  });
});

describe("search", () => {
  test("it puts exact names first, then exact opcodes, then the rest in order", () => {
    expect(searchNodes(model, "fusion.1").hits).toEqual([2]);
    expect(searchNodes(model, "parameter").hits).toEqual([0, 1]);
    expect(searchNodes(model, "dot").hits).toEqual([8]);
  });

  test("it takes all words, of name or opcode, in any case", () => {
    expect(searchNodes(model, "MUL 5").hits).toEqual([5]);
    expect(searchNodes(model, "op:add").hits).toEqual([6]);
    expect(searchNodes(model, "name:fusion add").hits).toEqual([]);
  });

  test("it counts all hits even when it gives only some", () => {
    expect(searchNodes(model, "p", 2)).toEqual({ hits: [0, 1], total: 5 });
  });

  test("it finds nothing for an empty query", () => {
    expect(searchNodes(model, "   ")).toEqual({ hits: [], total: 0 });
  });
});

describe("groups", () => {
  test("it opens, closes and leaves the old set alone", () => {
    const closed = new Set<number>();
    const open = toggle(closed, 2);
    expect([...open]).toEqual([2]);
    expect([...toggle(open, 2)]).toEqual([]);
    expect(closed.size).toBe(0);
  });

  test("it opens what hides a node, and stands in for it while closed", () => {
    expect(visibleStandIn(model, new Set(), 8)).toBe(3);
    const open = reveal(model, new Set(), 8);
    expect([...open]).toEqual([3]);
    expect(visibleStandIn(model, open, 8)).toBe(8);
    expect(reveal(model, open, 8)).toBe(open);
  });

  test("it opens all levels within a limit and none above it", () => {
    expect([...openAll(model, 100)].sort((a, b) => a - b)).toEqual([2, 3, 14]);
    expect([...openAll(model, 6)]).toEqual([]);
  });
});
