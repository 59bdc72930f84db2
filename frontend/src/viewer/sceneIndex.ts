import RBush from "rbush";
import { OPEN, type Scene } from "../layout/scene";

interface Entry {
  minX: number;
  minY: number;
  maxX: number;
  maxY: number;
  place: number;
}

/** Finds boxes by place: which are in view, and which one is under the cursor. */
export class SceneIndex {
  private readonly tree = new RBush<Entry>();
  /** Bounds of each edge: left, top, right, bottom. */
  readonly edgeBounds: Float64Array;

  constructor(readonly scene: Scene) {
    const entries: Entry[] = new Array(scene.count);
    for (let place = 0; place < scene.count; place++) {
      const x = scene.x[place]!;
      const y = scene.y[place]!;
      entries[place] = { minX: x, minY: y, maxX: x + scene.width[place]!, maxY: y + scene.height[place]!, place };
    }
    this.tree.load(entries);
    this.edgeBounds = new Float64Array(scene.edgeCount * 4);
    for (let edge = 0; edge < scene.edgeCount; edge++) {
      let left = Infinity;
      let top = Infinity;
      let right = -Infinity;
      let bottom = -Infinity;
      for (let k = scene.route[edge]!; k < scene.route[edge + 1]!; k++) {
        left = Math.min(left, scene.points[2 * k]!);
        right = Math.max(right, scene.points[2 * k]!);
        top = Math.min(top, scene.points[2 * k + 1]!);
        bottom = Math.max(bottom, scene.points[2 * k + 1]!);
      }
      this.edgeBounds.set([left, top, right, bottom], 4 * edge);
    }
  }

  /** The innermost box at a point, or -1. */
  pick(x: number, y: number): number {
    let best = -1;
    for (const { place } of this.tree.search({ minX: x, minY: y, maxX: x, maxY: y })) {
      if (best < 0 || this.scene.depth[place]! > this.scene.depth[best]!) best = place;
    }
    return best;
  }

  /** Boxes that touch a rectangle, in drawing order (outermost first). */
  within(left: number, top: number, right: number, bottom: number): Uint32Array {
    const { scene } = this;
    if (left <= 0 && top <= 0 && right >= scene.totalWidth && bottom >= scene.totalHeight) {
      return this.all();
    }
    const found = this.tree.search({ minX: left, minY: top, maxX: right, maxY: bottom });
    return Uint32Array.from(found, (entry) => entry.place).sort();
  }

  /** The next box from `place` in a direction, for arrow keys: along edges up and down, else by position. */
  neighbour(place: number, dx: number, dy: number): number {
    const { scene } = this;
    const cx = scene.x[place]! + scene.width[place]! / 2;
    const cy = scene.y[place]! + scene.height[place]! / 2;
    let best = -1;
    let cost = Infinity;
    const reach = 1200;
    for (const { place: other } of this.tree.search({ minX: cx - reach, minY: cy - reach, maxX: cx + reach, maxY: cy + reach })) {
      if (other === place || scene.state[other] === OPEN) continue;
      const ox = scene.x[other]! + scene.width[other]! / 2 - cx;
      const oy = scene.y[other]! + scene.height[other]! / 2 - cy;
      const along = ox * dx + oy * dy;
      if (along <= 1) continue;
      const across = Math.abs(ox * dy) + Math.abs(oy * dx);
      const value = along + 2.5 * across;
      if (value < cost) {
        cost = value;
        best = other;
      }
    }
    return best;
  }

  private everything: Uint32Array | null = null;

  private all(): Uint32Array {
    return (this.everything ??= Uint32Array.from({ length: this.scene.count }, (_, i) => i));
  }
}
