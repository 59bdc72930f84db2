import { colour } from "../app/theme";
import type { GraphModel } from "../graph/document";
import { OP_KINDS, opKind } from "../graph/opKind";
import { boxName, boxSubtitle, HEADER, OPEN, PLAIN, type Scene } from "../layout/scene";
import type { Camera, Size } from "./camera";
import type { SceneIndex } from "./sceneIndex";

/** Below this zoom a box is a coloured rectangle; above `LABELS` it has its texts. */
export const COLOURS_ONLY = 0.16;
export const LABELS = 0.42;
/** So many edges in view cost too much, or are too dense to tell anything, at the lowest level. */
const EDGE_LIMIT = 12_000;

export interface Marks {
  selected: number;
  hovered: number;
  hits: ReadonlySet<number>;
}

export interface BoxText {
  name: string;
  second: string;
  kind: number;
}

/** Texts and colour of each box in the scene, made once per scene. */
export function boxTexts(model: GraphModel, scene: Scene): BoxText[] {
  return Array.from(scene.id, (id) => ({
    name: boxName(model, id),
    second: boxSubtitle(model, id),
    kind: OP_KINDS.indexOf(id >= model.nodeCount ? "group" : opKind(model.op[id]!)),
  }));
}

/** Draw what the camera sees; returns how many boxes that was. */
export function drawScene(
  context: CanvasRenderingContext2D,
  index: SceneIndex,
  texts: BoxText[],
  camera: Camera,
  view: Size,
  marks: Marks,
): number {
  const { scene } = index;
  const ratio = context.canvas.width / view.width;
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.fillStyle = colour("bg");
  context.fillRect(0, 0, view.width, view.height);
  const { zoom } = camera;
  context.setTransform(ratio * zoom, 0, 0, ratio * zoom, -camera.x * zoom * ratio, -camera.y * zoom * ratio);
  const right = camera.x + view.width / zoom;
  const bottom = camera.y + view.height / zoom;
  const visible = index.within(camera.x, camera.y, right, bottom);
  drawContainers(context, scene, texts, visible, zoom);
  drawEdges(context, index, camera, right, bottom, marks.selected);
  if (zoom < COLOURS_ONLY) drawFlat(context, scene, texts, visible);
  else drawBoxes(context, scene, texts, visible, zoom);
  drawMarks(context, scene, marks, zoom);
  return visible.length;
}

function kindColours(): string[] {
  return OP_KINDS.map((kind) => colour(`op-${kind}`));
}

function drawContainers(context: CanvasRenderingContext2D, scene: Scene, texts: BoxText[], visible: Uint32Array, zoom: number): void {
  const colours = kindColours();
  for (const place of visible) {
    if (scene.state[place] !== OPEN) continue;
    const x = scene.x[place]!;
    const y = scene.y[place]!;
    const width = scene.width[place]!;
    const height = scene.height[place]!;
    const tint = colours[texts[place]!.kind]!;
    context.fillStyle = colour("bg");
    context.fillRect(x, y, width, height);
    context.fillStyle = tint;
    context.globalAlpha = 0.08;
    context.fillRect(x, y, width, height);
    context.globalAlpha = 0.24;
    context.fillRect(x, y, width, HEADER);
    context.globalAlpha = 1;
    context.strokeStyle = tint;
    context.lineWidth = Math.max(1, 0.75 / zoom);
    context.strokeRect(x, y, width, height);
  }
}

function drawEdges(
  context: CanvasRenderingContext2D,
  index: SceneIndex,
  camera: Camera,
  right: number,
  bottom: number,
  selected: number,
): void {
  const { scene, edgeBounds } = index;
  const seen: number[] = [];
  const ins: number[] = [];
  const outs: number[] = [];
  for (let edge = 0; edge < scene.edgeCount; edge++) {
    const at = 4 * edge;
    if (edgeBounds[at]! > right || edgeBounds[at + 1]! > bottom || edgeBounds[at + 2]! < camera.x || edgeBounds[at + 3]! < camera.y) continue;
    if (scene.edgeTarget[edge] === selected) ins.push(edge);
    else if (scene.edgeSource[edge] === selected) outs.push(edge);
    else seen.push(edge);
  }
  const { zoom } = camera;
  if (seen.length <= EDGE_LIMIT) {
    context.strokeStyle = colour("edge");
    context.globalAlpha = zoom < COLOURS_ONLY ? 0.4 : 0.75;
    context.lineWidth = Math.max(1.1, 0.6 / zoom);
    context.beginPath();
    for (const edge of seen) traceEdge(context, scene, edge, zoom < COLOURS_ONLY);
    context.stroke();
    context.globalAlpha = 1;
  }
  for (const [edges, name] of [
    [ins, "edge-in"],
    [outs, "edge-out"],
  ] as const) {
    context.strokeStyle = colour(name);
    context.lineWidth = Math.max(2.2, 1.6 / zoom);
    context.beginPath();
    for (const edge of edges) traceEdge(context, scene, edge, false);
    context.stroke();
  }
}

function traceEdge(context: CanvasRenderingContext2D, scene: Scene, edge: number, straight: boolean): void {
  const from = scene.route[edge]!;
  const to = scene.route[edge + 1]!;
  if (to - from < 2) return;
  const x0 = scene.points[2 * from]!;
  const y0 = scene.points[2 * from + 1]!;
  context.moveTo(x0, y0);
  if (to - from > 2 || straight) {
    for (let k = from + 1; k < to; k++) context.lineTo(scene.points[2 * k]!, scene.points[2 * k + 1]!);
    return;
  }
  const x1 = scene.points[2 * from + 2]!;
  const y1 = scene.points[2 * from + 3]!;
  const bend = curveBend(y0, y1);
  context.bezierCurveTo(x0, y0 + bend, x1, y1 - bend, x1, y1);
}

/** How far a two-point edge goes straight before it curves. */
export function curveBend(y0: number, y1: number): number {
  return y1 > y0 ? Math.min(60, (y1 - y0) / 2) : 60;
}

function drawFlat(context: CanvasRenderingContext2D, scene: Scene, texts: BoxText[], visible: Uint32Array): void {
  const byKind: number[][] = OP_KINDS.map(() => []);
  for (const place of visible) if (scene.state[place] !== OPEN) byKind[texts[place]!.kind]!.push(place);
  const colours = kindColours();
  byKind.forEach((places, kind) => {
    context.fillStyle = colours[kind]!;
    for (const place of places) context.fillRect(scene.x[place]!, scene.y[place]!, scene.width[place]!, scene.height[place]!);
  });
}

function drawBoxes(context: CanvasRenderingContext2D, scene: Scene, texts: BoxText[], visible: Uint32Array, zoom: number): void {
  const colours = kindColours();
  const surface = colour("surface");
  const line = colour("strong-line");
  const text = colour("text");
  const muted = colour("muted");
  const labels = zoom >= LABELS;
  const mono = colour("mono");
  context.lineWidth = Math.max(0.8, 0.5 / zoom);
  context.strokeStyle = line;
  context.textBaseline = "middle";
  for (const place of visible) {
    if (scene.state[place] === OPEN) continue;
    const x = scene.x[place]!;
    const y = scene.y[place]!;
    const width = scene.width[place]!;
    const height = scene.height[place]!;
    context.fillStyle = labels ? surface : colours[texts[place]!.kind]!;
    context.fillRect(x, y, width, height);
    if (labels) {
      context.fillStyle = colours[texts[place]!.kind]!;
      context.fillRect(x, y, 5, height);
    }
    context.strokeRect(x, y, width, height);
  }
  if (!labels) return;
  // One pass a font: changing it costs more than the text.
  context.font = `600 12px ${mono}`;
  context.fillStyle = text;
  for (const place of visible) {
    const { name, second } = texts[place]!;
    const x = scene.x[place]!;
    const y = scene.y[place]!;
    const width = scene.width[place]!;
    if (scene.state[place] === OPEN) context.fillText(clip(`${name}   ${second}`, width - 40, 7.3), x + 12, y + HEADER / 2);
    else context.fillText(clip(name, textRoom(scene, place), 7.3), x + 13, y + scene.height[place]! / 2 - 8);
  }
  context.font = `10.5px ${mono}`;
  context.fillStyle = muted;
  for (const place of visible) {
    if (scene.state[place] === OPEN) continue;
    context.fillText(clip(texts[place]!.second, textRoom(scene, place), 6.4), scene.x[place]! + 13, scene.y[place]! + scene.height[place]! / 2 + 9);
  }
  context.font = "600 13px sans-serif";
  context.fillStyle = text;
  context.textAlign = "center";
  for (const place of visible) {
    if (scene.state[place] === PLAIN) continue;
    const open = scene.state[place] === OPEN;
    const x = scene.x[place]! + scene.width[place]! - (open ? 22 : 18);
    const y = scene.y[place]! + (open ? HEADER / 2 : scene.height[place]! / 2);
    context.strokeRect(x - 8, y - 8, 16, 16);
    context.fillText(open ? "–" : "+", x, y + 0.5);
  }
  context.textAlign = "start";
}

function textRoom(scene: Scene, place: number): number {
  return scene.width[place]! - 18 - (scene.state[place] === PLAIN ? 0 : 20);
}

/** Where the toggle of a box is: a click there opens or closes it. */
export function onToggle(scene: Scene, place: number, x: number, y: number): boolean {
  if (scene.state[place] === PLAIN) return false;
  const open = scene.state[place] === OPEN;
  const centreX = scene.x[place]! + scene.width[place]! - (open ? 22 : 18);
  const centreY = scene.y[place]! + (open ? HEADER / 2 : scene.height[place]! / 2);
  return Math.abs(x - centreX) <= 11 && Math.abs(y - centreY) <= 11;
}

function drawMarks(context: CanvasRenderingContext2D, scene: Scene, marks: Marks, zoom: number): void {
  const ring = (place: number, name: string, thickness: number) => {
    context.strokeStyle = colour(name);
    context.lineWidth = Math.max(thickness, thickness / zoom);
    const out = context.lineWidth / 2;
    context.strokeRect(scene.x[place]! - out, scene.y[place]! - out, scene.width[place]! + 2 * out, scene.height[place]! + 2 * out);
  };
  for (const hit of marks.hits) ring(hit, "hit", 2);
  if (marks.hovered >= 0 && marks.hovered !== marks.selected) ring(marks.hovered, "strong-line", 1.5);
  if (marks.selected >= 0) ring(marks.selected, "focus", 3);
}

function clip(text: string, room: number, characterWidth: number): string {
  const most = Math.max(1, Math.floor(room / characterWidth));
  return text.length <= most ? text : `${text.slice(0, most - 1)}…`;
}
