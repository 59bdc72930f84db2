import { lazy, Suspense, useCallback, useDeferredValue, useEffect, useMemo, useRef, useState, type ReactNode } from "react";
import { count } from "../app/format";
import { Waiting } from "../app/messages";
import type { GraphModel } from "../graph/document";
import { openAll, openAtFirst, reveal, toggle, visibleStandIn, type OpenBoxes } from "../graph/groups";
import { OP_KIND_TITLES, OP_KINDS, opKind } from "../graph/opKind";
import { searchNodes } from "../graph/search";
import { CanvasViewer } from "./CanvasViewer";
import { HelpDialog } from "./HelpDialog";
import type { GraphSurface } from "./surface";
import { useScene } from "./useScene";

export { warmLayout } from "./useScene";

const FlowEditor = lazy(() => import("../editor/FlowEditor").then((module) => ({ default: module.FlowEditor })));

/** Up to so many boxes React Flow draws them; above, and for good until the graph changes, the canvas does. */
const EDITOR_LIMIT = 500;
/** What is open at first stays below this many boxes. */
const FIRST_LIMIT = 300;
/** "Open all" stops before this many boxes. */
const OPEN_LIMIT = 20_000;
const NO_HITS: ReadonlySet<number> = new Set<number>();

interface Props {
  model: GraphModel;
  /** Name of the selected instruction. */
  selected: string | null;
  onSelect: (name: string | null) => void;
  toolbar?: ReactNode;
  /** Keys work when the focus is nowhere in particular, too; else only in the panel. */
  shortcuts: boolean;
}

/** A graph with its tools: search, open and close, fit, keyboard; picks the renderer by itself. */
export function GraphPanel({ model, selected, onSelect, toolbar, shortcuts }: Props) {
  const [open, setOpen] = useState<OpenBoxes>(() => openAtFirst(model, FIRST_LIMIT));
  const { scene, progress, error, cancel } = useScene(model, open, setOpen);
  const surface = useRef<GraphSurface>(null);
  const searchInput = useRef<HTMLInputElement>(null);
  const panel = useRef<HTMLDivElement>(null);
  const [query, setQuery] = useState("");
  const [at, setAt] = useState(-1);
  const [listed, setListed] = useState(false);
  const [help, setHelp] = useState(false);
  const deferred = useDeferredValue(query);
  const { hits, total } = useMemo(() => searchNodes(model, deferred), [model, deferred]);
  const [canvas, setCanvas] = useState(false);
  const useCanvas = canvas || (scene !== null && scene.count > EDITOR_LIMIT);
  if (useCanvas && !canvas) setCanvas(true);

  const node = selected === null ? -1 : model.find(selected);
  // A scope is no instruction: its selection is this panel's own.
  const [scope, setScope] = useState(-1);
  const chosen = node >= 0 ? node : scope;
  const place = scene && chosen >= 0 ? scene.placeOf[visibleStandIn(model, open, chosen)]! : -1;
  const hitPlaces = useMemo(() => {
    if (!scene || hits.length === 0) return NO_HITS;
    const places = new Set<number>();
    for (const hit of hits) {
      const found = scene.placeOf[visibleStandIn(model, open, hit)]!;
      if (found >= 0) places.add(found);
    }
    return places;
  }, [model, open, scene, hits]);

  // A selection from elsewhere (a link, the memory map, a hit) is brought into view, opened if it is inside.
  const shownFor = useRef<string | null>(null);
  const byHand = useRef<string | null>(null);
  useEffect(() => {
    if (!scene || node < 0 || shownFor.current === selected) return;
    if (byHand.current === selected) {
      shownFor.current = selected;
      return;
    }
    const next = reveal(model, open, node);
    if (next !== open) {
      setOpen(next);
      return;
    }
    const target = scene.placeOf[node]!;
    if (target < 0) return;
    shownFor.current = selected;
    surface.current?.reveal(target);
  }, [scene, node, selected, model, open, useCanvas]);

  const select = useCallback(
    (where: number) => {
      const id = where >= 0 && scene ? scene.id[where]! : -1;
      const name = id >= 0 && id < model.nodeCount ? model.nodeName[id]! : null;
      byHand.current = name;
      setScope(id >= model.nodeCount ? id : -1);
      onSelect(name);
    },
    [scene, model, onSelect],
  );
  const flip = useCallback(
    (where: number) => {
      if (scene) setOpen((before) => toggle(before, scene.id[where]!));
    },
    [scene],
  );
  const jump = useCallback(
    (index: number) => {
      if (hits.length === 0) return;
      const next = (index + hits.length) % hits.length;
      setAt(next);
      byHand.current = null;
      shownFor.current = null;
      onSelect(model.nodeName[hits[next]!]!);
    },
    [hits, model, onSelect],
  );

  useEffect(() => {
    const onKey = (event: KeyboardEvent) => {
      const target = event.target as HTMLElement;
      if (event.ctrlKey || event.metaKey || event.altKey || target.closest("input, select, textarea, dialog, [role=listbox]")) return;
      const nowhere = target === document.body || target.id === "main";
      const inside = panel.current?.contains(target) || (shortcuts && nowhere);
      if (!inside && !(nowhere && event.key === "?")) return;
      const step = 80;
      const moves: Record<string, [number, number]> = {
        w: [0, -step], a: [-step, 0], s: [0, step], d: [step, 0],
        ArrowUp: [0, -step], ArrowLeft: [-step, 0], ArrowDown: [0, step], ArrowRight: [step, 0],
      };
      const move = moves[event.key];
      if (move) surface.current?.panBy(...move);
      else if (event.key === "+" || event.key === "=") surface.current?.zoomBy(1.25);
      else if (event.key === "-") surface.current?.zoomBy(0.8);
      else if (event.key === "f") surface.current?.fit();
      else if (event.key === "/") searchInput.current?.focus();
      else if (event.key === "?") setHelp(true);
      else if (event.key === "n") jump(at + 1);
      else if (event.key === "N") jump(at - 1);
      else if (event.key === "Escape") onSelect(null);
      else if (event.key === "o" && place >= 0 && scene && scene.state[place] !== 0) flip(place);
      else return;
      event.preventDefault();
    };
    window.addEventListener("keydown", onKey);
    return () => window.removeEventListener("keydown", onKey);
  }, [shortcuts, jump, at, onSelect, place, scene, flip]);

  const kinds = useMemo(() => {
    const present = new Set(model.op.map(opKind));
    if (model.subgroups.items.length > 0) present.add("group");
    return OP_KINDS.filter((kind) => present.has(kind));
  }, [model]);
  const opens = model.calls.items.length + model.subgroups.items.length > 0;
  const label = `Graph of ${model.name}: ${model.nodeCount} instructions, ${scene?.count ?? 0} boxes shown`;

  return (
    <div className="graph-panel" ref={panel}>
      <div className="toolbar">
        {toolbar}
        <div
          className="search-box"
          role="search"
          onBlur={(event) => {
            if (!event.currentTarget.contains(event.relatedTarget)) setListed(false);
          }}
        >
          <input
            ref={searchInput}
            type="search"
            role="combobox"
            aria-expanded={listed && hits.length > 0}
            aria-controls="search-hits"
            aria-label="Search instructions by name or opcode"
            placeholder="Search name or opcode   /"
            data-testid="search-input"
            value={query}
            onChange={(event) => {
              setQuery(event.target.value);
              setAt(-1);
              setListed(true);
            }}
            onFocus={() => setListed(true)}
            onKeyDown={(event) => {
              if (event.key === "Enter" || event.key === "ArrowDown") jump(event.shiftKey ? at - 1 : at + 1);
              else if (event.key === "ArrowUp") jump(at - 1);
              else if (event.key === "Escape") {
                if (listed && query) setListed(false);
                else event.currentTarget.blur();
              } else return;
              event.preventDefault();
            }}
          />
          {query.trim() !== "" && (
            <span className="count number" role="status">
              {at >= 0 ? `${at + 1}/` : ""}
              {count(total)} hit{total === 1 ? "" : "s"}
            </span>
          )}
          {listed && query.trim() !== "" && (
            <ul className="search-hits" id="search-hits" role="listbox" aria-label="Hits" data-testid="search-hits" data-count={total}>
              {hits.slice(0, 100).map((hit, i) => (
                <li
                  key={hit}
                  role="option"
                  aria-selected={i === at}
                  ref={(element) => {
                    if (i === at) element?.scrollIntoView({ block: "nearest" });
                  }}
                  onPointerDown={(event) => {
                    event.preventDefault();
                    jump(i);
                  }}
                >
                  <span className="mono truncate">{model.nodeName[hit]}</span>
                  <span className="mono muted">{model.op[hit]}</span>
                </li>
              ))}
              {total > 100 && <li className="muted">{count(total - 100)} more; ↓ and ↑ go through the first {count(hits.length)}</li>}
              {total === 0 && <li className="muted">Nothing has that in its name or opcode.</li>}
            </ul>
          )}
        </div>
        <div className="row">
          <button type="button" className="icon" title="Previous hit (N)" aria-label="Previous hit" disabled={hits.length === 0} onClick={() => jump(at - 1)}>
            ↑
          </button>
          <button type="button" className="icon" title="Next hit (n)" aria-label="Next hit" disabled={hits.length === 0} onClick={() => jump(at + 1)}>
            ↓
          </button>
        </div>
        <span className="spacer" />
        {opens && (
          <>
            <button type="button" title="Show what is inside scopes, fusions, loops and calls" onClick={() => setOpen(openAll(model, OPEN_LIMIT))}>
              Open all
            </button>
            <button type="button" disabled={open.size === 0} onClick={() => setOpen(new Set<number>())}>
              Close all
            </button>
          </>
        )}
        <button type="button" title="Fit the whole graph (f)" onClick={() => surface.current?.fit()}>
          Fit
        </button>
        <button type="button" className="icon" title="Keyboard (?)" aria-label="Keyboard help" onClick={() => setHelp(true)}>
          ?
        </button>
      </div>
      <div className="canvas-area" tabIndex={0} role="group" aria-label={label} data-testid="graph-canvas" data-nodes={scene?.count ?? 0} data-renderer={useCanvas ? "canvas" : "flow"}>
        {progress !== null && (
          <div className="overlay" role="status">
            <span className="nowrap">Laying out…</span>
            <progress value={progress} aria-label="Layout" />
            <button type="button" onClick={cancel}>
              Cancel
            </button>
          </div>
        )}
        {error && (
          <div className="overlay box bad" role="alert">
            {error}
          </div>
        )}
        {scene && (
          <div className="fill">
            {useCanvas ? (
              <div className="full-size">
                <CanvasViewer model={model} scene={scene} selected={place} hits={hitPlaces} onSelect={select} onToggle={flip} surface={surface} label={label} />
              </div>
            ) : (
              <Suspense fallback={<Waiting>Drawing…</Waiting>}>
                <div className="full-size">
                  <FlowEditor model={model} scene={scene} selected={place} hits={hitPlaces} onSelect={select} onToggle={flip} surface={surface} label={label} />
                </div>
              </Suspense>
            )}
          </div>
        )}
      </div>
      <div className="graph-legend legend">
        {kinds.map((kind) => (
          <span key={kind}>
            <span className="swatch" style={{ background: `var(--op-${kind})` }} />
            {OP_KIND_TITLES[kind]}
          </span>
        ))}
      </div>
      {help && <HelpDialog onClose={() => setHelp(false)} />}
    </div>
  );
}
