import { useCallback, useEffect, useMemo, useRef, useState } from "react";
import { bytes, count } from "../app/format";
import { colour, useTheme } from "../app/theme";
import { useSize } from "../viewer/useSize";
import { fromByte, fromStep, panMap, revealInMap, ticks, toByte, toStep, wholeMap, zoomMap, type Frame, type MapWindow } from "./mapView";
import type { BufferKind, MemoryMapModel } from "./memoryMap";

interface Props {
  model: MemoryMapModel;
  capacity: number;
  /** Residencies to mark. */
  marked: ReadonlySet<number>;
  /** Step of the selected instruction, -1 for none. */
  step: number;
  onPick: (residency: number) => void;
}

const LEFT = 76;
const STRIP = 30;
const BOTTOM = 26;
const RIGHT = 10;

/** The fast memory over time: each rectangle is a buffer's stay, steps across and offsets upwards. */
export function MemoryMap({ model, capacity, marked, step, onPick }: Props) {
  const area = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const size = useSize(area);
  const theme = useTheme();
  const whole = useMemo(() => wholeMap(model.steps, capacity), [model.steps, capacity]);
  const [shown, setShown] = useState<MapWindow | null>(null);
  const [hover, setHover] = useState<{ residency: number; x: number; y: number } | null>(null);
  const window_ = shown ?? whole;
  const frame = useMemo<Frame>(
    () => ({ left: LEFT, top: STRIP, width: Math.max(1, size.width - LEFT - RIGHT), height: Math.max(1, size.height - STRIP - BOTTOM) }),
    [size],
  );

  // A mark from elsewhere comes into view; a new mapping alone moves nothing.
  const lastMarked = useRef<string>("");
  useEffect(() => {
    const first = [...marked][0];
    if (first === undefined) {
      lastMarked.current = "";
      return;
    }
    const buffer = `${model.map.buffer[first]}`;
    if (lastMarked.current === buffer) return;
    lastMarked.current = buffer;
    const offset = model.map.offset[first]!;
    setShown((before) => before && revealInMap(before, whole, model.map.start[first]!, model.map.end[first]!, offset, offset + model.size[first]!));
  }, [marked, model, whole]);

  useEffect(() => {
    const element = canvas.current;
    const context = element?.getContext("2d");
    if (!element || !context || size.width === 0) return;
    const request = requestAnimationFrame(() => {
      const ratio = window.devicePixelRatio || 1;
      const width = Math.round(size.width * ratio);
      const height = Math.round(size.height * ratio);
      if (element.width !== width || element.height !== height) {
        element.width = width;
        element.height = height;
      }
      context.setTransform(ratio, 0, 0, ratio, 0, 0);
      context.clearRect(0, 0, size.width, size.height);
      draw(context, model, window_, frame, capacity, marked, hover?.residency ?? -1, step);
    });
    return () => cancelAnimationFrame(request);
  }, [model, window_, frame, size, capacity, marked, hover, step, theme]);

  const zoom = useCallback(
    (x: number, y: number, factor: number, mode: "both" | "steps" | "bytes") =>
      setShown((before) => {
        const current = before ?? whole;
        return zoomMap(
          current,
          whole,
          toStep(current, frame, x),
          toByte(current, frame, y),
          mode === "bytes" ? 1 : factor,
          mode === "steps" ? 1 : factor,
        );
      }),
    [whole, frame],
  );

  useEffect(() => {
    const element = canvas.current!;
    const onWheel = (event: WheelEvent) => {
      event.preventDefault();
      const box = element.getBoundingClientRect();
      const delta = (event.deltaY || event.deltaX) * (event.deltaMode === 1 ? 30 : 1);
      zoom(event.clientX - box.left, event.clientY - box.top, Math.exp(delta * 0.0015), event.shiftKey ? "steps" : event.altKey ? "bytes" : "both");
    };
    element.addEventListener("wheel", onWheel, { passive: false });
    return () => element.removeEventListener("wheel", onWheel);
  }, [zoom]);

  const drag = useRef<{ x: number; y: number; moved: boolean } | null>(null);
  const pickAt = (event: React.PointerEvent): { residency: number; x: number; y: number } => {
    const box = canvas.current!.getBoundingClientRect();
    const x = event.clientX - box.left;
    const y = event.clientY - box.top;
    if (x < frame.left || y < frame.top || y > frame.top + frame.height) return { residency: -1, x, y };
    const reachSteps = (3 / frame.width) * (window_.step1 - window_.step0);
    const reachBytes = (3 / frame.height) * (window_.byte1 - window_.byte0);
    return { residency: model.pickNear(toStep(window_, frame, x), toByte(window_, frame, y), reachSteps, reachBytes), x, y };
  };
  const panBy = (dx: number, dy: number) =>
    setShown((before) => {
      const current = before ?? whole;
      return panMap(current, whole, (dx / frame.width) * (current.step1 - current.step0), (-dy / frame.height) * (current.byte1 - current.byte0));
    });

  return (
    <div className="canvas-area" ref={area}>
      <canvas
        ref={canvas}
        tabIndex={0}
        role="img"
        aria-label={`Memory map: ${model.count} stays in fast memory over ${model.steps} steps. The list beside it holds the same.`}
        data-testid="memory-map"
        data-rectangles={model.count}
        onPointerDown={(event) => {
          if (event.button !== 0) return;
          event.currentTarget.setPointerCapture(event.pointerId);
          drag.current = { x: event.clientX, y: event.clientY, moved: false };
        }}
        onPointerMove={(event) => {
          const held = drag.current;
          if (!held) {
            const found = pickAt(event);
            event.currentTarget.style.cursor = found.residency >= 0 ? "pointer" : "grab";
            setHover(found.residency >= 0 ? found : null);
            return;
          }
          const dx = held.x - event.clientX;
          const dy = held.y - event.clientY;
          if (!held.moved && Math.hypot(dx, dy) < 4) return;
          drag.current = { x: event.clientX, y: event.clientY, moved: true };
          setHover(null);
          panBy(dx, dy);
        }}
        onPointerUp={(event) => {
          const moved = drag.current?.moved;
          drag.current = null;
          if (!moved && event.button === 0) onPick(pickAt(event).residency);
        }}
        onPointerCancel={() => (drag.current = null)}
        onPointerLeave={() => setHover(null)}
        onDoubleClick={() => setShown(null)}
        onKeyDown={(event) => {
          if (event.ctrlKey || event.metaKey || event.altKey) return;
          const moves: Record<string, [number, number]> = {
            w: [0, -60], a: [-60, 0], s: [0, 60], d: [60, 0],
            ArrowUp: [0, -60], ArrowLeft: [-60, 0], ArrowDown: [0, 60], ArrowRight: [60, 0],
          };
          const move = moves[event.key];
          const middle: [number, number] = [frame.left + frame.width / 2, frame.top + frame.height / 2];
          if (move) panBy(...move);
          else if (event.key === "+" || event.key === "=") zoom(...middle, 0.8, "both");
          else if (event.key === "-") zoom(...middle, 1.25, "both");
          else if (event.key === "f") setShown(null);
          else return;
          event.preventDefault();
          event.stopPropagation();
        }}
      />
      {model.count === 0 && (
        <div className="overlay" role="status">
          No buffer is in fast memory in this mapping.
        </div>
      )}
      {hover && hover.residency < model.count && (
        <div
          className="tooltip"
          style={{
            ...(hover.x > size.width / 2 ? { right: size.width - hover.x + 14 } : { left: hover.x + 14 }),
            ...(hover.y > size.height / 2 ? { bottom: size.height - hover.y + 14 } : { top: hover.y + 14 }),
          }}
        >
          <Residency model={model} residency={hover.residency} />
        </div>
      )}
    </div>
  );
}

export const KIND_TITLES: Record<BufferKind, string> = {
  input: "input (parameter or constant)",
  intermediate: "intermediate",
  output: "output",
};

/** What one stay in fast memory is, in words. */
export function Residency({ model, residency }: { model: MemoryMapModel; residency: number }) {
  const { map, program } = model;
  const buffer = map.buffer[residency]!;
  const start = map.start[residency]!;
  const ready = map.ready[residency]!;
  const end = map.end[residency]!;
  const evict = map.evict[residency]!;
  return (
    <>
      <div className="mono break">
        <strong>{model.bufferName(residency)}</strong>
      </div>
      <div>
        {bytes(model.size[residency])} at offset {bytes(map.offset[residency])} · {KIND_TITLES[model.kind[residency]!]}
      </div>
      <div>
        In fast memory from step {start} to {end - 1}; lives from {program.buffers.start[buffer]} to {(program.buffers.end[buffer] ?? 1) - 1}
      </div>
      <div>
        {map.prefetched[residency]
          ? `Prefetch: issued before step ${start}, awaited before step ${ready}`
          : `Produced there by step ${start}, ${program.steps.name[start] ?? ""}`}
      </div>
      <div>{evict >= 0 ? `Eviction: issued before step ${evict}, awaited before step ${end}` : "Not evicted: dropped at the end"}</div>
    </>
  );
}

function draw(
  context: CanvasRenderingContext2D,
  model: MemoryMapModel,
  view: MapWindow,
  frame: Frame,
  capacity: number,
  marked: ReadonlySet<number>,
  hovered: number,
  step: number,
): void {
  const { left, top, width, height } = frame;
  const sans = colour("sans");
  drawAxes(context, view, frame, sans);
  context.save();
  context.beginPath();
  context.rect(left, top, width, height);
  context.clip();
  drawRegions(context, model, view, frame);
  drawRectangles(context, model, view, frame);
  const capacityY = fromByte(view, frame, capacity);
  context.strokeStyle = colour("bad");
  context.lineWidth = 1.5;
  context.setLineDash([6, 4]);
  context.beginPath();
  context.moveTo(left, capacityY);
  context.lineTo(left + width, capacityY);
  context.stroke();
  context.setLineDash([]);
  context.fillStyle = colour("bad");
  context.font = `12px ${sans}`;
  context.textAlign = "right";
  context.textBaseline = capacityY - top > 16 ? "bottom" : "top";
  context.fillText(`capacity ${bytes(capacity)}`, left + width - 6, capacityY + (capacityY - top > 16 ? -2 : 2));
  const outline = (residency: number, name: string, line: number) => {
    const [x0, y0, x1, y1] = rectangle(model, residency, view, frame);
    context.strokeStyle = colour(name);
    context.lineWidth = line;
    context.strokeRect(x0 - 0.5, y0 - 0.5, Math.max(2, x1 - x0) + 1, Math.max(2, y1 - y0) + 1);
  };
  if (hovered >= 0 && hovered < model.count) outline(hovered, "text", 1.5);
  for (const residency of marked) outline(residency, "focus", 3);
  if (step >= 0) {
    const x = fromStep(view, frame, step + 0.5);
    context.strokeStyle = colour("focus");
    context.lineWidth = 1.5;
    context.beginPath();
    context.moveTo(x, top);
    context.lineTo(x, top + height);
    context.stroke();
  }
  context.restore();
  drawUsage(context, model, view, frame, capacity, sans);
}

function rectangle(model: MemoryMapModel, residency: number, view: MapWindow, frame: Frame): [number, number, number, number] {
  const offset = model.map.offset[residency]!;
  return [
    fromStep(view, frame, model.map.start[residency]!),
    fromByte(view, frame, offset + model.size[residency]!),
    fromStep(view, frame, model.map.end[residency]!),
    fromByte(view, frame, offset),
  ];
}

function drawAxes(context: CanvasRenderingContext2D, view: MapWindow, { left, top, width, height }: Frame, sans: string): void {
  const frame = { left, top, width, height };
  context.fillStyle = colour("surface");
  context.fillRect(left, top, width, height);
  context.strokeStyle = colour("grid");
  context.lineWidth = 1;
  context.fillStyle = colour("muted");
  context.font = `11.5px ${sans}`;
  context.textAlign = "right";
  context.textBaseline = "middle";
  context.beginPath();
  for (const value of ticks(view.byte0, view.byte1, Math.max(2, height / 44), true)) {
    const y = Math.round(fromByte(view, frame, value)) + 0.5;
    context.moveTo(left, y);
    context.lineTo(left + width, y);
    context.fillText(bytes(value), left - 8, y);
  }
  context.textAlign = "center";
  context.textBaseline = "top";
  for (const value of ticks(view.step0, view.step1, Math.max(2, width / 90), false)) {
    const x = Math.round(fromStep(view, frame, value)) + 0.5;
    context.moveTo(x, top);
    context.lineTo(x, top + height);
    if (x < left + width - 44) context.fillText(count(value), x, top + height + 6);
  }
  context.stroke();
  context.textAlign = "right";
  context.fillText("step", left + width, top + height + 6);
}

function drawRegions(context: CanvasRenderingContext2D, model: MemoryMapModel, view: MapWindow, frame: Frame): void {
  const { region } = model.program.steps;
  context.fillStyle = colour("op-control");
  context.globalAlpha = 0.09;
  let start = 0;
  for (let at = 1; at <= region.length; at++) {
    if (at < region.length && region[at] === region[start]) continue;
    if (region[start]! >= 0) {
      const x = fromStep(view, frame, start);
      context.fillRect(x, frame.top, Math.max(1, fromStep(view, frame, at) - x), frame.height);
    }
    start = at;
  }
  context.globalAlpha = 1;
}

function drawRectangles(context: CanvasRenderingContext2D, model: MemoryMapModel, view: MapWindow, frame: Frame): void {
  const { map } = model;
  const colours: Record<BufferKind, string> = {
    input: colour("map-input"),
    intermediate: colour("map-intermediate"),
    output: colour("map-output"),
  };
  const edge = colour("surface");
  const label = colour("on-map");
  const mono = colour("mono");
  context.textAlign = "left";
  context.textBaseline = "middle";
  const plain = colour("text");
  const named: { x: number; y: number; text: string; ink: string }[] = [];
  for (const i of model.drawOrder) {
    const start = map.start[i]!;
    const end = map.end[i]!;
    const offset = map.offset[i]!;
    if (end < view.step0 || start > view.step1 || offset > view.byte1 || offset + model.size[i]! < view.byte0) continue;
    const [x0, y0, x1, y1] = rectangle(model, i, view, frame);
    const w = Math.max(1, x1 - x0);
    const h = Math.max(1, y1 - y0);
    context.fillStyle = colours[model.kind[i]!];
    // A copy under way takes up the space already; it is drawn lighter.
    const ready = map.prefetched[i] ? fromStep(view, frame, map.ready[i]!) : x0;
    const evict = map.evict[i]! >= 0 ? fromStep(view, frame, map.evict[i]!) : x1;
    context.globalAlpha = 0.4;
    if (ready > x0) context.fillRect(x0, y0, Math.max(1, ready - x0), h);
    if (evict < x1) context.fillRect(evict, y0, Math.max(1, x1 - evict), h);
    context.globalAlpha = 1;
    if (evict > ready) context.fillRect(ready, y0, Math.max(1, evict - ready), h);
    if (w > 4 && h > 4) {
      context.strokeStyle = edge;
      context.lineWidth = 1;
      context.strokeRect(x0 + 0.5, y0 + 0.5, w - 1, h - 1);
    }
    if (w > 64 && h > 15) {
      const from = Math.max(x0, frame.left) + 5;
      const most = Math.floor((Math.min(x1, frame.left + frame.width) - from - 4) / 6.7);
      const name = model.bufferName(i);
      if (most >= 5) named.push({ ink: from < ready || from >= evict ? plain : label, x: from, y: (Math.max(y0, frame.top) + Math.min(y1, frame.top + frame.height)) / 2, text: name.length <= most ? name : `${name.slice(0, most - 1)}…` });
    }
  }
  context.font = `11px ${mono}`;
  for (const { x, y, text, ink } of named) {
    context.fillStyle = ink;
    context.fillText(text, x, y);
  }
}

/** The strip above the map: bytes in use at each step, up to the capacity. */
function drawUsage(context: CanvasRenderingContext2D, model: MemoryMapModel, view: MapWindow, frame: Frame, capacity: number, sans: string): void {
  const { left, width } = frame;
  const base = STRIP - 6;
  const height = base - 4;
  context.fillStyle = colour("raised");
  context.fillRect(left, 4, width, height);
  context.fillStyle = colour("muted");
  context.globalAlpha = 0.75;
  const columns = Math.ceil(width);
  for (let column = 0; column < columns; column++) {
    const from = Math.max(0, Math.floor(toStep(view, frame, left + column)));
    const to = Math.min(model.steps, Math.max(from + 1, Math.ceil(toStep(view, frame, left + column + 1))));
    let most = 0;
    for (let step = from; step < to; step++) most = Math.max(most, model.usage[step]!);
    const part = Math.min(1, most / capacity) * height;
    context.fillRect(left + column, base - part, 1, part);
  }
  context.globalAlpha = 1;
  context.fillStyle = colour("muted");
  context.font = `11px ${sans}`;
  context.textAlign = "right";
  context.textBaseline = "middle";
  context.fillText("in use", left - 8, 4 + height / 2);
}
