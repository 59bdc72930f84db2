import RBush from "rbush";
import type { MapColumns } from "./runView";

/** The scheduled program, as far as the memory map shows it. */
export interface ProgramColumns {
  steps: { name: string[]; opcode: string[]; region: number[]; repeat: number[]; computation: string[] };
  buffers: {
    name: string[];
    size: number[];
    start: number[];
    end: number[];
    input: (boolean | number)[];
    output: (boolean | number)[];
  };
}

export type BufferKind = "input" | "intermediate" | "output";

interface Box {
  minX: number;
  minY: number;
  maxX: number;
  maxY: number;
  index: number;
}

/** Residencies as rectangles in steps and bytes, with an index for picking and culling. */
export class MemoryMapModel {
  readonly count: number;
  readonly steps: number;
  /** Bytes in use before each step `[steps]`, copies in flight included. */
  readonly usage: Float64Array;
  readonly peak: number;
  /** Rectangles ordered by colour: filling is fastest when the colour changes seldom. */
  readonly drawOrder: Uint32Array;
  readonly kind: BufferKind[];
  readonly size: Float64Array;
  private readonly tree = new RBush<Box>();

  constructor(
    readonly program: ProgramColumns,
    readonly map: MapColumns,
  ) {
    this.count = map.buffer.length;
    this.steps = program.steps.name.length;
    this.size = Float64Array.from(map.buffer, (buffer) => program.buffers.size[buffer] ?? 0);
    this.kind = map.buffer.map((buffer) => bufferKind(program, buffer));
    const delta = new Float64Array(this.steps + 1);
    const boxes: Box[] = [];
    for (let i = 0; i < this.count; i++) {
      const start = map.start[i]!;
      const end = map.end[i]!;
      const offset = map.offset[i]!;
      const size = this.size[i]!;
      delta[Math.min(start, this.steps)]! += size;
      delta[Math.min(end, this.steps)]! -= size;
      boxes.push({ minX: start, maxX: end, minY: offset, maxY: offset + size, index: i });
    }
    this.tree.load(boxes);
    this.usage = new Float64Array(this.steps);
    let used = 0;
    let peak = 0;
    for (let step = 0; step < this.steps; step++) {
      used += delta[step]!;
      this.usage[step] = used;
      peak = Math.max(peak, used);
    }
    this.peak = peak;
    const order = Uint32Array.from({ length: this.count }, (_, i) => i);
    this.drawOrder = order.sort((a, b) => rank(this.kind[a]!) - rank(this.kind[b]!) || a - b);
  }

  /** The residency at a place in the map, or -1. Rectangles are half-open, so that neighbours never both answer. */
  pick(step: number, bytes: number): number {
    const hits = this.tree.search({ minX: step, maxX: step, minY: bytes, maxY: bytes });
    for (const { minX, maxX, minY, maxY, index } of hits) {
      if (step >= minX && step < maxX && bytes >= minY && bytes < maxY) return index;
    }
    return -1;
  }

  /** The residency at a place, or the nearest within the given reach. */
  pickNear(step: number, bytes: number, reachSteps: number, reachBytes: number): number {
    const exact = this.pick(step, bytes);
    if (exact >= 0) return exact;
    const hits = this.tree.search({
      minX: step - reachSteps,
      maxX: step + reachSteps,
      minY: bytes - reachBytes,
      maxY: bytes + reachBytes,
    });
    let nearest = -1;
    let distance = Infinity;
    for (const { minX, maxX, minY, maxY, index } of hits) {
      const dx = Math.max(minX - step, 0, step - maxX) / reachSteps;
      const dy = Math.max(minY - bytes, 0, bytes - maxY) / reachBytes;
      const d = dx * dx + dy * dy;
      if (d < distance || (d === distance && index < nearest)) {
        distance = d;
        nearest = index;
      }
    }
    return nearest;
  }

  /** Residencies that touch a window of steps and bytes, in no particular order. */
  within(fromStep: number, toStep: number, fromBytes: number, toBytes: number): number[] {
    return this.tree.search({ minX: fromStep, maxX: toStep, minY: fromBytes, maxY: toBytes }).map((box) => box.index);
  }

  bufferName(residency: number): string {
    return this.program.buffers.name[this.map.buffer[residency]!] ?? "?";
  }

  /** Residencies whose buffer's name contains the query, in order of start. */
  search(query: string): number[] {
    const wanted = query.trim().toLowerCase();
    const found: number[] = [];
    for (let i = 0; i < this.count; i++) {
      if (wanted === "" || this.bufferName(i).toLowerCase().includes(wanted)) found.push(i);
    }
    return found.sort((a, b) => this.map.start[a]! - this.map.start[b]! || this.map.offset[a]! - this.map.offset[b]!);
  }

  /** Residencies of the buffers that an instruction defines. */
  ofInstruction(name: string): number[] {
    const found: number[] = [];
    for (let i = 0; i < this.count; i++) if (instructionOf(this.bufferName(i)) === name) found.push(i);
    return found;
  }

  /** Buffers that an instruction defines, resident or not. */
  buffersOf(name: string): number[] {
    const found: number[] = [];
    this.program.buffers.name.forEach((buffer, i) => {
      if (instructionOf(buffer) === name) found.push(i);
    });
    return found;
  }

  stepOf(name: string): number {
    return this.program.steps.name.indexOf(name);
  }
}

const KINDS: BufferKind[] = ["input", "intermediate", "output"];

function rank(kind: BufferKind): number {
  return KINDS.indexOf(kind);
}

export function bufferKind(program: ProgramColumns, buffer: number): BufferKind {
  if (program.buffers.input[buffer]) return "input";
  return program.buffers.output[buffer] ? "output" : "intermediate";
}

/** The instruction that defines a buffer: `fusion.3{0}` is element 0 of what `fusion.3` gives. */
export function instructionOf(bufferName: string): string {
  const brace = bufferName.indexOf("{");
  return (brace < 0 ? bufferName : bufferName.slice(0, brace)).trim();
}
