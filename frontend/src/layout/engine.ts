import { ElkEngine } from "./elkEngine";
import { LayeredEngine } from "./layeredEngine";
import { LayoutCancelled, type LayoutEngine, type LayoutInput, type LayoutResult } from "./types";

/** Groups of this many boxes are laid out by ELK; in smaller ones there is nothing to gain. */
export const LIBRARY_LEAST = 8;
export const LIBRARY_LIMIT = 400;
/** Edges count too: ELK's time grows with the dummy nodes of long edges. */
const LIBRARY_EDGES = 600;
/** More layers than this go to our own layout, which folds them into columns. */
const FOLD_DEPTH = 24;
/** ELK gets this long, then our own layout takes over. */
export const DEADLINE_MS = 2000;

/** The library for small groups within a deadline, our own near-linear pass above and after it. */
export class AutoEngine implements LayoutEngine {
  constructor(
    private readonly library: LayoutEngine = new ElkEngine(),
    private readonly fast: LayoutEngine = new LayeredEngine(),
    private readonly deadlineMs = DEADLINE_MS,
  ) {}

  /** Start what takes long to start. */
  warm(): void {
    this.library.warm?.();
  }

  async layout(input: LayoutInput, signal: AbortSignal, onProgress: (fraction: number) => void): Promise<LayoutResult> {
    if (worthTheLibrary(input)) {
      const deadline = AbortSignal.timeout(this.deadlineMs);
      try {
        return await this.library.layout(input, AbortSignal.any([signal, deadline]), onProgress);
      } catch (error) {
        if (signal.aborted || !deadline.aborted) throw error;
      }
    }
    if (signal.aborted) throw new LayoutCancelled();
    return this.fast.layout(input, signal, onProgress);
  }
}

function worthTheLibrary(input: LayoutInput): boolean {
  const boxes = input.width.length;
  return !input.hurried && boxes >= LIBRARY_LEAST && boxes <= LIBRARY_LIMIT && input.source.length <= LIBRARY_EDGES && depthOf(input) <= FOLD_DEPTH;
}

function depthOf({ width, source, target }: LayoutInput): number {
  const depth = new Int32Array(width.length);
  let most = 0;
  // Documents list producers first, so one pass in that order finds nearly all of the longest path.
  for (let i = 0; i < source.length; i++) {
    const value = depth[source[i]!]! + 1;
    if (value > depth[target[i]!]!) depth[target[i]!] = value;
    most = Math.max(most, value);
  }
  return most;
}
