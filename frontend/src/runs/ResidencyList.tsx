import { useEffect, useMemo, useRef, useState } from "react";
import { bytes, count } from "../app/format";
import { useSize } from "../viewer/useSize";
import type { MemoryMapModel } from "./memoryMap";

const ROW = 40;

interface Props {
  model: MemoryMapModel;
  marked: ReadonlySet<number>;
  onPick: (residency: number) => void;
  onOpen: (residency: number) => void;
}

/** The memory map as a list, for the keyboard and for screen readers; only the rows in view exist. */
export function ResidencyList({ model, marked, onPick, onOpen }: Props) {
  const [query, setQuery] = useState("");
  const scroller = useRef<HTMLDivElement>(null);
  const { height } = useSize(scroller);
  const [top, setTop] = useState(0);
  const found = useMemo(() => model.search(query), [model, query]);
  const current = found.findIndex((residency) => marked.has(residency));
  const first = Math.max(0, Math.floor(top / ROW) - 4);
  const last = Math.min(found.length, Math.ceil((top + Math.max(height, ROW)) / ROW) + 4);

  // Follow the mark, but not each new mapping: what one reads must not run away.
  const buffer = current >= 0 ? model.map.buffer[found[current]!] : undefined;
  useEffect(() => {
    const element = scroller.current;
    if (!element || buffer === undefined || current < 0) return;
    if (current * ROW < element.scrollTop || (current + 1) * ROW > element.scrollTop + element.clientHeight) {
      element.scrollTop = Math.max(0, current * ROW - element.clientHeight / 2);
    }
    // eslint-disable-next-line react-hooks/exhaustive-deps
  }, [buffer]);

  const move = (to: number) => {
    const residency = found[Math.max(0, Math.min(found.length - 1, to))];
    if (residency === undefined) return;
    onPick(residency);
    const element = scroller.current!;
    const y = Math.max(0, Math.min(found.length - 1, to)) * ROW;
    if (y < element.scrollTop) element.scrollTop = y;
    else if (y + ROW > element.scrollTop + element.clientHeight) element.scrollTop = y + ROW - element.clientHeight;
  };

  return (
    <>
      <div className="list-head">
        <input type="search" aria-label="Search buffers in fast memory" placeholder="Search buffers" data-testid="buffer-search" value={query} onChange={(event) => setQuery(event.target.value)} />
        <p className="small muted number">
          {query ? `${count(found.length)} of ${count(model.count)}` : count(model.count)} stays in fast memory
        </p>
      </div>
      <div
        className="residencies"
        ref={scroller}
        role="listbox"
        aria-label="Buffers in fast memory"
        aria-activedescendant={current >= 0 ? `residency-${found[current]}` : undefined}
        tabIndex={0}
        onScroll={(event) => setTop(event.currentTarget.scrollTop)}
        onKeyDown={(event) => {
          const page = Math.max(1, Math.floor(height / ROW) - 1);
          const moves: Record<string, number> = {
            ArrowDown: current + 1,
            ArrowUp: current < 0 ? 0 : current - 1,
            PageDown: current + page,
            PageUp: current - page,
            Home: 0,
            End: found.length - 1,
          };
          if (event.key in moves) move(moves[event.key]!);
          else if (event.key === "Enter" && current >= 0) onOpen(found[current]!);
          else return;
          event.preventDefault();
        }}
      >
        <div style={{ height: found.length * ROW }} />
        {found.slice(first, last).map((residency, i) => (
          <div
            key={residency}
            id={`residency-${residency}`}
            className="residency"
            role="option"
            aria-selected={marked.has(residency)}
            style={{ top: (first + i) * ROW }}
            onClick={() => onPick(residency)}
          >
            <span className="swatch" style={{ background: `var(--map-${model.kind[residency]!})` }} />
            <span className="grow">
              <span className="name truncate block">{model.bufferName(residency)}</span>
              <span className="second truncate block">
                steps {model.map.start[residency]}–{model.map.end[residency]! - 1}
                {model.map.prefetched[residency] ? " · prefetch" : ""}
                {model.map.evict[residency]! >= 0 ? " · evicted" : ""}
              </span>
            </span>
            <span className="small number nowrap">{bytes(model.size[residency])}</span>
          </div>
        ))}
      </div>
    </>
  );
}
