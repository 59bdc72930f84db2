import {
  BaseEdge,
  Handle,
  MiniMap,
  Position,
  ReactFlow,
  ReactFlowProvider,
  useReactFlow,
  useStore,
  type Edge,
  type EdgeProps,
  type Node,
  type NodeProps,
} from "@xyflow/react";
import { memo, useEffect, useImperativeHandle, useMemo, useRef, type Ref } from "react";
import { colour, useTheme } from "../app/theme";
import type { GraphModel } from "../graph/document";
import { OP_KINDS } from "../graph/opKind";
import { CLOSED, OPEN, type Scene } from "../layout/scene";
import { boxTexts, curveBend } from "../viewer/draw";
import type { GraphSurface } from "../viewer/surface";

interface BoxData extends Record<string, unknown> {
  name: string;
  second: string;
  kind: string;
  state: number;
  place: number;
  selected: boolean;
  hit: boolean;
  onToggle: (place: number) => void;
}

interface Props {
  model: GraphModel;
  scene: Scene;
  selected: number;
  hits: ReadonlySet<number>;
  onSelect: (place: number) => void;
  onToggle: (place: number) => void;
  surface: Ref<GraphSurface>;
  label: string;
}

/** Draws scenes of editing size with React Flow; sizes and handles come from the scene, so nothing is measured. */
export function FlowEditor(props: Props) {
  return (
    <div className="canvas-area">
      <div className="fill" role="group" aria-label={props.label}>
        <ReactFlowProvider>
          <Flow {...props} />
        </ReactFlowProvider>
      </div>
    </div>
  );
}

function Flow({ model, scene, selected, hits, onSelect, onToggle, surface }: Props) {
  const flow = useReactFlow();
  const theme = useTheme();
  const far = useStore(isFar);
  const texts = useMemo(() => boxTexts(model, scene), [model, scene]);
  const base = useMemo(
    () =>
      Array.from(scene.id, (id, place): Node<BoxData> => {
        const width = scene.width[place]!;
        const height = scene.height[place]!;
        const { name, second, kind } = texts[place]!;
        return {
          id: String(id),
          type: "box",
          position: { x: scene.x[place]!, y: scene.y[place]! },
          width,
          height,
          zIndex: scene.depth[place]! * 2,
          handles: [
            { type: "target", position: Position.Top, x: width / 2, y: 0, width: 1, height: 1 },
            { type: "source", position: Position.Bottom, x: width / 2, y: height, width: 1, height: 1 },
          ],
          data: { name, second, kind: OP_KINDS[kind]!, state: scene.state[place]!, place, selected: false, hit: false, onToggle },
          ariaLabel: `${name}, ${second}`,
        };
      }),
    [scene, texts, onToggle],
  );
  const nodes = useMemo(
    () =>
      base.map((node, place) =>
        place === selected || hits.has(place) ? { ...node, data: { ...node.data, selected: place === selected, hit: hits.has(place) } } : node,
      ),
    [base, selected, hits],
  );
  const edges = useMemo(
    () =>
      Array.from(scene.edgeSource, (source, edge): Edge => {
        const target = scene.edgeTarget[edge]!;
        return {
          id: String(edge),
          type: "routed",
          source: String(scene.id[source]!),
          target: String(scene.id[target]!),
          data: { path: edgePath(scene, edge), side: target === selected ? "in" : source === selected ? "out" : "" },
          zIndex: scene.depth[source]! * 2 + 1,
          focusable: false,
        };
      }),
    [scene, selected],
  );

  const toggled = useRef<{ scene: Scene; id: number } | null>(null);
  const flip = useMemo(
    () => (place: number) => {
      toggled.current = { scene, id: scene.id[place]! };
      onToggle(place);
    },
    [scene, onToggle],
  );
  const shown = useMemo(() => nodes.map((node) => ({ ...node, data: { ...node.data, onToggle: flip } })), [nodes, flip]);

  // A box that was opened or closed stays where it was on the screen.
  useEffect(() => {
    const held = toggled.current;
    if (!held || held.scene === scene) return;
    toggled.current = null;
    const before = held.scene.placeOf[held.id]!;
    const after = scene.placeOf[held.id]!;
    if (before < 0 || after < 0) return;
    const { x, y, zoom } = flow.getViewport();
    void flow.setViewport({
      x: x - (scene.x[after]! - held.scene.x[before]!) * zoom,
      y: y - (scene.y[after]! - held.scene.y[before]!) * zoom,
      zoom,
    });
  }, [scene, flow]);

  useImperativeHandle(
    surface,
    () => ({
      fit: () => void flow.fitBounds({ x: 0, y: 0, width: scene.totalWidth, height: scene.totalHeight }, { padding: 0.05 }),
      reveal: (place) =>
        void flow.setCenter(scene.x[place]! + scene.width[place]! / 2, scene.y[place]! + Math.min(scene.height[place]!, 400) / 2, {
          zoom: Math.max(0.7, flow.getZoom()),
        }),
      zoomBy: (factor) => void flow.zoomTo(flow.getZoom() * factor),
      panBy: (dx, dy) => {
        const { x, y, zoom } = flow.getViewport();
        void flow.setViewport({ x: x - dx, y: y - dy, zoom });
      },
    }),
    [flow, scene],
  );

  return (
    <ReactFlow
      nodes={shown}
      edges={edges}
      nodeTypes={NODE_TYPES}
      edgeTypes={EDGE_TYPES}
      colorMode={theme}
      nodesDraggable={false}
      nodesConnectable={false}
      elementsSelectable={false}
      nodesFocusable={false}
      edgesFocusable={false}
      deleteKeyCode={null}
      selectionKeyCode={null}
      zoomOnDoubleClick={false}
      minZoom={0.02}
      maxZoom={2.5}
      className={far ? "far" : ""}
      onInit={(instance) => {
        // Small graphs are not blown up over their natural size.
        const width = Math.max(scene.totalWidth + 64, 900);
        const height = Math.max(scene.totalHeight + 64, 560);
        void instance.fitBounds({ x: (scene.totalWidth - width) / 2, y: (scene.totalHeight - height) / 2, width, height }, { padding: 0.01 });
      }}
      onNodeClick={(_, node) => onSelect(node.data.place as number)}
      onNodeDoubleClick={(_, node) => flip(node.data.place as number)}
      onPaneClick={() => onSelect(-1)}
      disableKeyboardA11y
    >
      <MiniMap
        pannable
        zoomable
        ariaLabel="Minimap"
        style={{ width: 180, height: 120 }}
        nodeColor={(node: Node) => (node.data.state === OPEN ? "transparent" : colour(`op-${String(node.data.kind)}`))}
        nodeStrokeColor={colour("line")}
      />
    </ReactFlow>
  );
}

const Box = memo(function Box({ data }: NodeProps<Node<BoxData>>) {
  const { name, second, kind, state, place, selected, hit, onToggle } = data;
  const classes = ["op-box", state === OPEN ? "open" : "", selected ? "selected" : "", hit ? "hit" : ""].filter(Boolean).join(" ");
  const toggle = state !== 0 && (
    <button
      type="button"
      className="toggle nodrag"
      aria-label={state === CLOSED ? `Open ${name}` : `Close ${name}`}
      onClick={(event) => {
        event.stopPropagation();
        onToggle(place);
      }}
    >
      {state === CLOSED ? "+" : "–"}
    </button>
  );
  // React Flow measures nodes after all, and takes away handles that it does not find in the page.
  const handles = (
    <>
      <Handle type="target" position={Position.Top} isConnectable={false} />
      <Handle type="source" position={Position.Bottom} isConnectable={false} />
    </>
  );
  const style = { "--op": `var(--op-${kind})` } as React.CSSProperties;
  if (state === OPEN) {
    return (
      <div className={classes} style={style}>
        <div className="bar">
          <span className="name mono truncate">{name}</span>
          <span className="second mono muted truncate grow">{second}</span>
          {toggle}
        </div>
        {handles}
      </div>
    );
  }
  return (
    <div className={classes} style={style} title={`${name}\n${second}`}>
      <div className="texts">
        <div className="name truncate">{name}</div>
        <div className="second truncate">{second}</div>
      </div>
      {toggle}
      {handles}
    </div>
  );
});

const Routed = memo(function Routed({ id, data }: EdgeProps) {
  return <BaseEdge id={id} path={String(data?.path ?? "")} className={`graph-edge ${String(data?.side ?? "")}`} interactionWidth={0} />;
});

function isFar({ transform }: { transform: [number, number, number] }): boolean {
  return transform[2] < 0.4;
}

// Outside of the component: React Flow mounts everything again when these change.
const NODE_TYPES = { box: Box };
const EDGE_TYPES = { routed: Routed };

/** SVG path of an edge: its orthogonal route with rounded corners, or one curve. */
export function edgePath(scene: Scene, edge: number): string {
  const from = scene.route[edge]!;
  const to = scene.route[edge + 1]!;
  const point = (k: number): [number, number] => [scene.points[2 * k]!, scene.points[2 * k + 1]!];
  if (to - from < 2) return "";
  const [x0, y0] = point(from);
  if (to - from === 2) {
    const [x1, y1] = point(from + 1);
    const bend = curveBend(y0, y1);
    return `M${x0},${y0}C${x0},${y0 + bend} ${x1},${y1 - bend} ${x1},${y1}`;
  }
  let path = `M${x0},${y0}`;
  for (let k = from + 1; k < to - 1; k++) {
    const [px, py] = point(k - 1);
    const [x, y] = point(k);
    const [nx, ny] = point(k + 1);
    const before = Math.hypot(x - px, y - py);
    const after = Math.hypot(nx - x, ny - y);
    const radius = Math.min(6, before / 2, after / 2);
    if (radius < 0.5) {
      path += `L${x},${y}`;
      continue;
    }
    path += `L${x - ((x - px) / before) * radius},${y - ((y - py) / before) * radius}`;
    path += `Q${x},${y} ${x + ((nx - x) / after) * radius},${y + ((ny - y) / after) * radius}`;
  }
  const [xe, ye] = point(to - 1);
  return `${path}L${xe},${ye}`;
}
