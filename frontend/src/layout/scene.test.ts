import { expect, test } from "vitest";
import { GraphModel } from "../graph/document";
import { smallDocument } from "../graph/testGraph";
import { SceneIndex } from "../viewer/sceneIndex";
import { layered } from "./layered";
import { CLOSED, OPEN, PLAIN, SceneBuilder, type Scene } from "./scene";
import type { LayoutEngine } from "./types";

class CountingEngine implements LayoutEngine {
  calls = 0;
  layout: LayoutEngine["layout"] = (input) => {
    this.calls++;
    return Promise.resolve(layered(input));
  };
}

const model = new GraphModel(smallDocument());
const signal = new AbortController().signal;

function inside(scene: Scene, inner: number, outer: number): boolean {
  return (
    scene.x[inner]! >= scene.x[outer]! &&
    scene.y[inner]! >= scene.y[outer]! &&
    scene.x[inner]! + scene.width[inner]! <= scene.x[outer]! + scene.width[outer]! &&
    scene.y[inner]! + scene.height[inner]! <= scene.y[outer]! + scene.height[outer]!
  );
}

test("closed callers show their own box, and an uncalled computation stands beside the entry", async () => {
  const scene = await new SceneBuilder(model, new CountingEngine()).build(new Set(), signal);
  expect(scene.count).toBe(6);
  expect(scene.edgeCount).toBe(5);
  expect(scene.state[scene.placeOf[2]!]).toBe(CLOSED);
  expect(scene.state[scene.placeOf[0]!]).toBe(PLAIN);
  expect(scene.placeOf[5]).toBe(-1);
  expect(scene.state[scene.placeOf[model.nodeCount + 4]!]).toBe(CLOSED);
});

test("an open caller holds the boxes of all its computations", async () => {
  const scene = await new SceneBuilder(model, new CountingEngine()).build(new Set([2, 3]), signal);
  const [fusion, loop] = [scene.placeOf[2]!, scene.placeOf[3]!];
  expect(scene.state[fusion]).toBe(OPEN);
  for (const node of [5, 6]) expect(inside(scene, scene.placeOf[node]!, fusion)).toBe(true);
  for (const node of [7, 8]) expect(inside(scene, scene.placeOf[node]!, loop)).toBe(true);
  expect(inside(scene, scene.placeOf[5]!, loop)).toBe(false);
});

test("opening lays out the opened group and those around it only, and closing is remembered", async () => {
  const engine = new CountingEngine();
  const builder = new SceneBuilder(model, engine);
  const closed = await builder.build(new Set(), signal);
  expect(engine.calls).toBe(1);
  await builder.build(new Set([2]), signal);
  expect(engine.calls).toBe(3);
  const again = await builder.build(new Set(), signal);
  expect(again.x).toEqual(closed.x);
});

test("picking finds the innermost box", async () => {
  const scene = await new SceneBuilder(model, new CountingEngine()).build(new Set([2]), signal);
  const index = new SceneIndex(scene);
  const inner = scene.placeOf[5]!;
  expect(index.pick(scene.x[inner]! + 1, scene.y[inner]! + 1)).toBe(inner);
  const outer = scene.placeOf[2]!;
  expect(index.pick(scene.x[outer]! + 1, scene.y[outer]! + 1)).toBe(outer);
  expect(index.pick(-10, -10)).toBe(-1);
});

test("what is in view comes in drawing order", async () => {
  const scene = await new SceneBuilder(model, new CountingEngine()).build(new Set([2, 3]), signal);
  const index = new SceneIndex(scene);
  const outer = scene.placeOf[2]!;
  const seen = [...index.within(scene.x[outer]!, scene.y[outer]!, scene.x[outer]! + scene.width[outer]!, scene.y[outer]! + scene.height[outer]!)];
  expect(seen).toContain(scene.placeOf[5]!);
  expect(seen).toEqual([...seen].sort((a, b) => a - b));
});
