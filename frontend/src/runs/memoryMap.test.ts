import { describe, expect, test } from "vitest";
import { fromByte, fromStep, panMap, revealInMap, ticks, toByte, toStep, wholeMap, zoomMap } from "./mapView";
import { instructionOf, MemoryMapModel, type ProgramColumns } from "./memoryMap";

const program: ProgramColumns = {
  steps: { name: ["a", "b", "c", "d"], opcode: ["dot", "add", "add", "dot"], region: [-1, -1, -1, -1], repeat: [1, 1, 1, 1], computation: ["m", "m", "m", "m"] },
  buffers: { name: ["p0", "a", "b{1}", "d"], size: [100, 200, 50, 50], start: [0, 0, 1, 3], end: [4, 3, 4, 4], input: [true, false, false, false], output: [false, false, false, true] },
};
const model = new MemoryMapModel(program, {
  buffer: [0, 1, 2, 3],
  offset: [200, 0, 200, 0],
  start: [0, 0, 2, 3],
  ready: [1, 0, 2, 3],
  end: [2, 3, 4, 4],
  prefetched: [true, false, false, false],
  evict: [-1, -1, -1, 3],
});

describe("the memory map", () => {
  test("it picks the rectangle at a place, and none where there is none", () => {
    expect(model.pick(0.5, 250)).toBe(0);
    expect(model.pick(1, 10)).toBe(1);
    expect(model.pick(3.5, 210)).toBe(2);
    expect(model.pick(3.5, 100)).toBe(-1);
  });

  test("rectangles are half-open: neighbours in time and in bytes never both answer", () => {
    expect(model.pick(2, 220)).toBe(2);
    expect(model.pick(3, 10)).toBe(3);
    expect(model.pick(1, 200)).toBe(0);
    expect(model.pick(1, 199.999)).toBe(1);
  });

  test("near misses find the nearest within reach", () => {
    expect(model.pickNear(3.5, 60, 0.2, 20)).toBe(3);
    expect(model.pickNear(3.5, 60, 0.2, 5)).toBe(-1);
  });

  test("it adds up the bytes in use at each step", () => {
    expect([...model.usage]).toEqual([300, 300, 250, 100]);
    expect(model.peak).toBe(300);
  });

  test("it finds buffers by name and by the instruction that defines them", () => {
    expect(model.search("B")).toEqual([2]);
    expect(model.search("")).toEqual([1, 0, 2, 3]);
    expect(model.ofInstruction("b")).toEqual([2]);
    expect(model.buffersOf("b")).toEqual([2]);
    expect(instructionOf("fusion.3{0,1}")).toBe("fusion.3");
    expect(model.stepOf("d")).toBe(3);
  });

  test("it tells inputs, intermediates and outputs apart", () => {
    expect(model.kind).toEqual(["input", "intermediate", "intermediate", "output"]);
    expect([...model.within(3.2, 3.8, 0, 20)]).toEqual([3]);
  });
});

describe("the window onto the map", () => {
  const whole = wholeMap(100, 1000);
  const frame = { left: 50, top: 10, width: 200, height: 100 };

  test("pixels and places turn into each other", () => {
    expect(toStep(whole, frame, fromStep(whole, frame, 37))).toBeCloseTo(37);
    expect(toByte(whole, frame, fromByte(whole, frame, 640))).toBeCloseTo(640);
    expect(fromByte(whole, frame, 0)).toBe(110);
  });

  test("zooming keeps the place under the cursor and never shows more than the whole", () => {
    const near = zoomMap(whole, whole, 25, 400, 0.5, 0.5);
    expect(near.step1 - near.step0).toBeCloseTo(50);
    expect(fromStep(near, frame, 25)).toBeCloseTo(fromStep(whole, frame, 25));
    expect(zoomMap(near, whole, 25, 400, 10, 10)).toEqual(whole);
  });

  test("panning stops at the edges", () => {
    const near = zoomMap(whole, whole, 50, 500, 0.5, 0.5);
    expect(panMap(near, whole, -1000, 0).step0).toBe(0);
    expect(panMap(near, whole, 0, 1e9).byte1).toBeCloseTo(whole.byte1);
  });

  test("it moves to what lies outside and stays for what lies inside", () => {
    const near = zoomMap(whole, whole, 20, 200, 0.3, 0.3);
    const moved = revealInMap(near, whole, 80, 90, 700, 800);
    expect(moved.step0).toBeLessThanOrEqual(80);
    expect(moved.step1).toBeGreaterThanOrEqual(90);
    expect(revealInMap(moved, whole, 80, 90, 700, 800)).toBe(moved);
  });

  test("ticks are round, in decimal for steps and in binary for bytes", () => {
    expect(ticks(0, 100, 5, false)).toEqual([0, 20, 40, 60, 80, 100]);
    expect(ticks(0, 5000, 5, true)).toEqual([0, 1024, 2048, 3072, 4096]);
  });
});
