import type { ELK, ElkNode } from "elkjs/lib/elk-api";
import workerUrl from "elkjs/lib/elk-worker.min.js?url";
import { LayoutCancelled, type LayoutEngine, type LayoutInput, type LayoutResult } from "./types";
import { GAP_X, GAP_Y } from "./layered";

const OPTIONS = {
  "elk.algorithm": "layered",
  "elk.direction": "DOWN",
  "elk.edgeRouting": "ORTHOGONAL",
  "elk.padding": "[top=0,left=0,bottom=0,right=0]",
  "elk.spacing.nodeNode": String(GAP_X),
  "elk.spacing.edgeNode": "14",
  "elk.spacing.edgeEdge": "10",
  "elk.layered.spacing.nodeNodeBetweenLayers": String(GAP_Y),
  "elk.layered.nodePlacement.strategy": "NETWORK_SIMPLEX",
  // Every run alike: the picture of a graph must not change from one opening to the next.
  "elk.randomSeed": "1",
  "elk.separateConnectedComponents": "false",
};

/** ELK's layered layout with orthogonal routes, in its own worker (1.6 MB, loaded at the first use). */
export class ElkEngine implements LayoutEngine {
  private elk: ELK | null = null;
  private loading: Promise<ELK> | null = null;

  async layout(input: LayoutInput, signal: AbortSignal): Promise<LayoutResult> {
    if (signal.aborted) throw new LayoutCancelled();
    const elk = await (this.loading ??= this.load());
    const aborted = new Promise<never>((_, reject) => {
      const stop = () => {
        this.dispose();
        reject(new LayoutCancelled());
      };
      if (signal.aborted) stop();
      else signal.addEventListener("abort", stop, { once: true });
    });
    return fromElk(input, await Promise.race([elk.layout(toElk(input)), aborted]));
  }

  /** Load the worker and let it compile its code, on the smallest of graphs. */
  warm(): void {
    if (this.elk) return;
    const two = new Float64Array(2).fill(50);
    const tiny = { width: two, height: two, source: Uint32Array.of(0), target: Uint32Array.of(1) };
    this.layout(tiny, new AbortController().signal).catch(() => undefined);
  }

  dispose(): void {
    this.elk?.terminateWorker();
    this.elk = null;
    this.loading = null;
  }

  private async load(): Promise<ELK> {
    const { default: Elk } = await import("elkjs/lib/elk-api");
    return (this.elk = new Elk({ workerUrl }));
  }
}

export function toElk({ width, height, source, target }: LayoutInput): ElkNode {
  return {
    id: "root",
    layoutOptions: OPTIONS,
    children: Array.from(width, (w, i) => ({ id: `n${i}`, width: w, height: height[i]! })),
    edges: Array.from(source, (from, i) => ({ id: `e${i}`, sources: [`n${from}`], targets: [`n${target[i]!}`] })),
  };
}

export function fromElk(input: LayoutInput, root: ElkNode): LayoutResult {
  const count = input.width.length;
  const x = new Float64Array(count);
  const y = new Float64Array(count);
  (root.children ?? []).forEach((child, i) => {
    x[i] = child.x ?? 0;
    y[i] = child.y ?? 0;
  });
  const route = new Uint32Array(input.source.length + 1);
  const points: number[] = [];
  (root.edges ?? []).forEach((edge, i) => {
    const section = edge.sections?.[0];
    if (section) {
      for (const point of [section.startPoint, ...(section.bendPoints ?? []), section.endPoint]) points.push(point.x, point.y);
    }
    route[i + 1] = points.length / 2;
  });
  return { x, y, width: root.width ?? 0, height: root.height ?? 0, route, points: Float64Array.from(points) };
}
