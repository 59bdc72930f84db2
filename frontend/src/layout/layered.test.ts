import { describe, expect, test } from "vitest";
import { chainDocument } from "../graph/testGraph";
import { AutoEngine } from "./engine";
import { fromElk, toElk } from "./elkEngine";
import { layered } from "./layered";
import { LayoutCancelled, type LayoutEngine, type LayoutInput, type LayoutResult } from "./types";

/** A fixed stream of numbers in [0, 1). */
function numbers(seed: number): () => number {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
}

function randomInput(count: number, seed: number): LayoutInput {
  const next = numbers(seed);
  const source: number[] = [];
  const target: number[] = [];
  for (let node = 1; node < count; node++) {
    for (let k = 0; k < 1 + Math.floor(next() * 2); k++) {
      source.push(Math.max(0, node - 1 - Math.floor(next() * 12)));
      target.push(node);
    }
  }
  return {
    width: Float64Array.from({ length: count }, () => 60 + Math.floor(next() * 160)),
    height: Float64Array.from({ length: count }, () => 30 + Math.floor(next() * 80)),
    source: Uint32Array.from(source),
    target: Uint32Array.from(target),
  };
}

function overlaps({ x, y }: LayoutResult, { width, height }: LayoutInput): number {
  let found = 0;
  for (let a = 0; a < x.length; a++) {
    for (let b = a + 1; b < x.length; b++) {
      const apart = x[a]! + width[a]! <= x[b]! + 1e-6 || x[b]! + width[b]! <= x[a]! + 1e-6 || y[a]! + height[a]! <= y[b]! + 1e-6 || y[b]! + height[b]! <= y[a]! + 1e-6;
      if (!apart) found++;
    }
  }
  return found;
}

function wideInput(): LayoutInput {
  // Two layers: 20 sources above 20 readers, each layer in one row.
  return {
    width: new Float64Array(40).fill(100),
    height: new Float64Array(40).fill(40),
    source: Uint32Array.from({ length: 20 }, (_, i) => i),
    target: Uint32Array.from({ length: 20 }, (_, i) => 39 - i),
  };
}

describe("the layered layout", () => {
  test.each([1, 2, 3])("no two boxes overlap (graph %i)", (seed) => {
    const input = randomInput(400, seed);
    expect(overlaps(layered(input), input)).toBe(0);
  });

  test("each box stands below all that it reads while the layout is one column", () => {
    const input = randomInput(10, 7);
    const { x, y } = layered(input);
    expect(Math.min(...x)).toBeCloseTo(0);
    for (let edge = 0; edge < input.source.length; edge++) {
      const from = input.source[edge]!;
      expect(y[input.target[edge]!]).toBeGreaterThanOrEqual(y[from]! + input.height[from]!);
    }
  });

  test("readers come in the order of what they read, so that edges do not cross", () => {
    const input = wideInput();
    const { x } = layered(input);
    for (let i = 1; i < 20; i++) expect(x[39 - i]! > x[40 - i]!).toBe(x[i]! > x[i - 1]!);
  });

  test("a parameter stands right above its first reader", () => {
    const input: LayoutInput = {
      width: new Float64Array(5).fill(100),
      height: new Float64Array(5).fill(40),
      source: Uint32Array.from([0, 1, 2, 4]),
      target: Uint32Array.from([1, 2, 3, 3]),
    };
    const { y } = layered(input);
    expect(y[4]).toBe(y[2]);
  });

  test("equal input gives an equal picture", () => {
    const first = layered(randomInput(300, 5));
    const second = layered(randomInput(300, 5));
    expect(first).toEqual(second);
  });

  test("a long chain is folded into columns of a screen's shape", () => {
    const { edges, nodes } = chainDocument(600, 7);
    const count = nodes.id.length;
    const input = {
      width: new Float64Array(count).fill(140),
      height: new Float64Array(count).fill(44),
      source: Uint32Array.from(edges.source),
      target: Uint32Array.from(edges.target),
    };
    const result = layered(input);
    expect(overlaps(result, input)).toBe(0);
    expect(result.height / result.width).toBeLessThan(2);
  });

  test("a cycle and a self-loop do not hang it", () => {
    const input: LayoutInput = {
      width: new Float64Array(4).fill(50),
      height: new Float64Array(4).fill(20),
      source: Uint32Array.from([0, 1, 2, 3]),
      target: Uint32Array.from([1, 2, 0, 3]),
    };
    expect(overlaps(layered(input), input)).toBe(0);
  });

  test("with hints the order of before is kept", () => {
    const input = wideInput();
    const before = layered(input);
    const grown = { ...input, width: input.width.map((width, i) => (i === 30 ? 400 : width)), hint: before.x.map((x) => x + 50) };
    const after = layered(grown);
    const order = (x: Float64Array, from: number) => Array.from({ length: 20 }, (_, i) => from + i).sort((a, b) => x[a]! - x[b]!);
    expect(order(after.x, 20)).toEqual(order(before.x, 20));
  });

  test("it reports progress up to the end and stops when it is cancelled", () => {
    const seen: number[] = [];
    layered(randomInput(50, 1), { onProgress: (fraction) => seen.push(fraction) });
    expect(seen.at(-1)).toBe(1);
    expect(seen).toEqual([...seen].sort((a, b) => a - b));
    let asked = 0;
    expect(() => layered(randomInput(50, 1), { cancelled: () => ++asked > 2 })).toThrow(LayoutCancelled);
    expect(asked).toBe(3);
  });

  test("it takes no boxes at all", () => {
    const none = { width: new Float64Array(0), height: new Float64Array(0), source: new Uint32Array(0), target: new Uint32Array(0) };
    expect(layered(none).width).toBe(0);
  });
});

class FakeEngine implements LayoutEngine {
  calls = 0;
  constructor(private readonly answers: boolean) {}

  layout(input: LayoutInput, signal: AbortSignal): Promise<LayoutResult> {
    this.calls++;
    if (this.answers) return Promise.resolve(layered(input));
    return new Promise((_, reject) => signal.addEventListener("abort", () => reject(new LayoutCancelled())));
  }
}

describe("the choice of engine", () => {
  test("small groups go to the library, large ones to our own layout", async () => {
    const library = new FakeEngine(true);
    const fast = new FakeEngine(true);
    const engine = new AutoEngine(library, fast);
    await engine.layout(randomInput(30, 1), new AbortController().signal, () => undefined);
    expect([library.calls, fast.calls]).toEqual([1, 0]);
    await engine.layout({ ...randomInput(30, 1), hurried: true }, new AbortController().signal, () => undefined);
    expect([library.calls, fast.calls]).toEqual([1, 1]);
    await engine.layout(randomInput(401, 1), new AbortController().signal, () => undefined);
    expect([library.calls, fast.calls]).toEqual([1, 2]);
  });

  test("our own layout takes over when the library misses its deadline", async () => {
    const fast = new FakeEngine(true);
    const engine = new AutoEngine(new FakeEngine(false), fast, 5);
    const result = await engine.layout(randomInput(30, 1), new AbortController().signal, () => undefined);
    expect(fast.calls).toBe(1);
    expect(result.x.length).toBe(30);
  });

  test("a cancelled layout is not tried again", async () => {
    const fast = new FakeEngine(true);
    const engine = new AutoEngine(new FakeEngine(false), fast);
    const abort = new AbortController();
    const waiting = engine.layout(randomInput(30, 1), abort.signal, () => undefined);
    abort.abort();
    await expect(waiting).rejects.toThrow(LayoutCancelled);
    expect(fast.calls).toBe(0);
  });
});

describe("ELK's documents", () => {
  test("boxes and edges go there and come back in the same order", async () => {
    const { default: Elk } = await import("elkjs/lib/elk.bundled.js");
    const input = randomInput(20, 3);
    const result = fromElk(input, await new Elk().layout(toElk(input)));
    expect(overlaps(result, input)).toBe(0);
    for (let edge = 0; edge < input.source.length; edge++) {
      const from = input.source[edge]!;
      const start = result.route[edge]!;
      expect(result.points[2 * start + 1]).toBeCloseTo(result.y[from]! + input.height[from]!);
      expect(result.points[2 * result.route[edge + 1]! - 1]).toBeCloseTo(result.y[input.target[edge]!]!);
    }
  });
});
