import type { EventFrame } from "../events/socket";

/** Residencies in fast memory as columns; the meaning of each is that of the mapping document. */
export interface MapColumns {
  buffer: number[];
  offset: number[];
  start: number[];
  ready: number[];
  end: number[];
  prefetched: (boolean | number)[];
  evict: number[];
}

/** What the event log of a run says so far. */
export interface RunView {
  /** Sequence number of the last event taken in. */
  seq: number;
  state: string | null;
  baselines: Record<string, number>;
  bound: number | null;
  fits: boolean | null;
  best: number | null;
  evaluations: number;
  seconds: number;
  step: number;
  metrics: Record<string, number>;
  map: MapColumns | null;
  improvements: number;
  reason: string | null;
  error: { code: string; message: string } | null;
  log: string[];
  series: Series;
}

/** Best value against evaluations and seconds; flat stretches keep their two ends only. */
export interface Series {
  evaluations: number[];
  seconds: number[];
  best: number[];
}

const LOG_LINES = 200;

export function emptyRunView(): RunView {
  return {
    seq: 0,
    state: null,
    baselines: {},
    bound: null,
    fits: null,
    best: null,
    evaluations: 0,
    seconds: 0,
    step: 0,
    metrics: {},
    map: null,
    improvements: 0,
    reason: null,
    error: null,
    log: [],
    series: { evaluations: [], seconds: [], best: [] },
  };
}

/** Take one event in; changes and returns the view (columns grow in place, outside of React's state). */
export function applyEvent(view: RunView, frame: EventFrame): RunView {
  view.seq = frame.seq;
  const data = frame.data;
  switch (frame.kind) {
    case "state":
      if (typeof data.state === "string") view.state = data.state;
      if (view.state === "queued" || view.state === "running") {
        view.reason = null;
        view.error = null;
      }
      break;
    case "started":
      view.baselines = (data.baselines as Record<string, number> | undefined) ?? view.baselines;
      view.bound = numberOr(data.bound, view.bound);
      view.fits = typeof data.fits === "boolean" ? data.fits : view.fits;
      break;
    case "progress":
      applyProgress(view, data);
      break;
    case "best":
      view.best = numberOr(data.latency_ps, view.best);
      view.map = (data.map as MapColumns | undefined) ?? view.map;
      view.improvements++;
      break;
    case "log":
      view.log = [...view.log, String(data.message ?? JSON.stringify(data))].slice(-LOG_LINES);
      break;
    case "error":
      view.error = { code: String(data.code ?? "error"), message: String(data.message ?? "") };
      break;
    case "finished": {
      const best = numberOr(data.latency_ps, view.best);
      view.reason = typeof data.reason === "string" ? data.reason : null;
      if (best !== null && typeof data.evaluations === "number" && typeof data.seconds === "number") {
        append(view, data.evaluations, data.seconds, best);
      }
      break;
    }
    case "checkpoint":
      break;
  }
  return view;
}

function applyProgress(view: RunView, data: Record<string, unknown>): void {
  const evaluations = column(data.evaluations);
  const seconds = column(data.seconds);
  const best = column(data.best);
  for (let i = 0; i < evaluations.length; i++) append(view, evaluations[i]!, seconds[i]!, best[i]!);
  view.step = column(data.step).at(-1) ?? view.step;
  for (const [name, values] of Object.entries((data.metrics as Record<string, unknown> | undefined) ?? {})) {
    const last = column(values).at(-1);
    if (last !== undefined) view.metrics[name] = last;
  }
}

function append(view: RunView, evaluations: number, seconds: number, best: number): void {
  const { series } = view;
  // A resumed attempt starts at its checkpoint: what the lost attempt did after it is done again, bit for bit.
  while (series.evaluations.length > 0 && series.evaluations.at(-1)! >= evaluations) {
    series.evaluations.pop();
    series.seconds.pop();
    series.best.pop();
  }
  while (series.seconds.length > 0 && series.seconds.at(-1)! > seconds) seconds = series.seconds.at(-1)!;
  const length = series.best.length;
  if (length >= 2 && series.best[length - 1] === best && series.best[length - 2] === best) {
    series.evaluations[length - 1] = evaluations;
    series.seconds[length - 1] = seconds;
  } else {
    series.evaluations.push(evaluations);
    series.seconds.push(seconds);
    series.best.push(best);
  }
  view.evaluations = evaluations;
  view.seconds = seconds;
  view.best = best;
}

function column(values: unknown): number[] {
  if (Array.isArray(values)) return values as number[];
  return typeof values === "number" ? [values] : [];
}

function numberOr<T>(value: unknown, otherwise: T): number | T {
  return typeof value === "number" ? value : otherwise;
}
