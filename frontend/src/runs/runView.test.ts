import { expect, test } from "vitest";
import type { EventFrame } from "../events/socket";
import { applyEvent, emptyRunView } from "./runView";

function view(...events: [EventFrame["kind"], Record<string, unknown>][]) {
  return events.reduce((state, [kind, data], i) => applyEvent(state, { v: 1, run: "r", seq: i + 1, kind, data }), emptyRunView());
}

const progress = (evaluations: number[], best: number[]): [EventFrame["kind"], Record<string, unknown>] => [
  "progress",
  { step: evaluations, evaluations, seconds: evaluations.map((value) => value / 10), best, metrics: { temperature: best.map(() => 0.5) } },
];

const map = { buffer: [0], offset: [0], start: [0], ready: [1], end: [2], prefetched: [true], evict: [-1] };

test("it takes baselines, progress in columns, and the best mapping", () => {
  const seen = view(
    ["state", { state: "running", attempt: 1 }],
    ["started", { baselines: { "all-slow": 100 }, bound: 10, fits: false }],
    progress([1, 2, 3], [90, 90, 80]),
    ["best", { step: 3, evaluations: 3, latency_ps: 80, map }],
  );
  expect(seen.state).toBe("running");
  expect(seen.baselines).toEqual({ "all-slow": 100 });
  expect([seen.bound, seen.best, seen.evaluations, seen.seconds]).toEqual([10, 80, 3, 0.3]);
  expect(seen.map).toEqual(map);
  expect(seen.metrics).toEqual({ temperature: 0.5 });
  expect(seen.seq).toBe(4);
});

test("flat stretches keep their two ends", () => {
  const { series } = view(progress([1, 2, 3, 4, 5, 6], [9, 9, 9, 9, 8, 8]));
  expect(series.evaluations).toEqual([1, 4, 5, 6]);
  expect(series.best).toEqual([9, 9, 8, 8]);
});

test("a resumed attempt replaces what came after its checkpoint", () => {
  const { series, evaluations } = view(progress([10, 20, 30], [9, 8, 7]), ["state", { state: "running", attempt: 2 }], progress([20, 30, 40], [8, 7, 6]));
  expect(series.evaluations).toEqual([10, 20, 30, 40]);
  expect(series.best).toEqual([9, 8, 7, 6]);
  expect(evaluations).toBe(40);
});

test("the end adds the last point, and an error is kept until the next start", () => {
  const ended = view(progress([1], [9]), ["finished", { reason: "evaluations", step: 2, evaluations: 5, seconds: 0.5, latency_ps: 8, artifacts: [] }]);
  expect(ended.series.evaluations).toEqual([1, 5]);
  expect([ended.reason, ended.best]).toEqual(["evaluations", 8]);
  const failed = view(["error", { code: "disk-full", message: "The disk is full" }], ["state", { state: "failed" }]);
  expect(failed.error).toEqual({ code: "disk-full", message: "The disk is full" });
  expect(view(["error", { code: "x", message: "y" }], ["state", { state: "queued" }]).error).toBeNull();
});
