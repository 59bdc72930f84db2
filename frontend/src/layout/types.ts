/** One group's boxes and the edges between them; sizes and positions in scene units (CSS pixels at zoom 1). */
export interface LayoutInput {
  width: Float64Array;
  height: Float64Array;
  /** Indices of boxes; `source[i] -> target[i]`. */
  source: Uint32Array;
  target: Uint32Array;
  /** Former horizontal centres, NaN where there is none: the order of a new layout follows them. */
  hint?: Float64Array;
  /** Part of a picture too large for careful layouts of its many groups. */
  hurried?: boolean;
}

export interface LayoutResult {
  /** Top left corners. */
  x: Float64Array;
  y: Float64Array;
  width: number;
  height: number;
  /** Points of edge `i`: `points[2 * route[i] .. 2 * route[i + 1]]` as x, y pairs; two points mean a plain curve. */
  route: Uint32Array;
  points: Float64Array;
}

export interface LayoutOptions {
  onProgress?: (fraction: number) => void;
  /** Asked between passes. */
  cancelled?: () => boolean;
}

export class LayoutCancelled extends Error {
  constructor() {
    super("layout cancelled");
  }
}

/** What lays out a group; both engines work off the page's own thread. */
export interface LayoutEngine {
  layout(input: LayoutInput, signal: AbortSignal, onProgress: (fraction: number) => void): Promise<LayoutResult>;
  warm?(): void;
}
