import { useQueryClient } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import { getEvents } from "../api/client";
import { events } from "../events/pageEvents";
import type { EventFrame } from "../events/socket";
import { applyEvent, emptyRunView, type RunView } from "./runView";

const PAGE = 1000;
/** Redraws a second are enough at 5; events may come at 14. */
const REDRAW_MS = 200;
const STRUCTURAL = new Set(["state", "started", "finished", "error", "checkpoint"]);

export interface RunLog {
  view: RunView;
  /** Changes whenever the view has; the view itself is one growing object. */
  version: number;
  loaded: boolean;
  error: unknown;
}

/** Follow a run: read its log over HTTP from the start, then live from where that ended. */
export function useRunLog(run: string): RunLog {
  const queries = useQueryClient();
  const [log, setLog] = useState<RunLog>(() => ({ view: emptyRunView(), version: 0, loaded: false, error: null }));

  useEffect(() => {
    let view = emptyRunView();
    let version = 0;
    let ended = false;
    let timer: ReturnType<typeof setTimeout> | null = null;
    let stale = false;
    let stop: () => void = () => undefined;

    const show = (loaded: boolean) => {
      timer = null;
      if (ended) return;
      setLog({ view, version: ++version, loaded, error: null });
      if (stale) {
        stale = false;
        void queries.invalidateQueries({ queryKey: ["run", run] });
      }
    };
    const soon = () => (timer ??= setTimeout(() => show(true), REDRAW_MS));
    const take = (frame: EventFrame) => {
      view = applyEvent(view, frame);
      if (STRUCTURAL.has(frame.kind)) stale = true;
      soon();
    };

    const load = async () => {
      stop();
      try {
        for (;;) {
          const page = await getEvents(run, view.seq, PAGE);
          if (ended) return;
          for (const { seq, kind, data } of page.items) view = applyEvent(view, { v: 1, run, seq, kind, data });
          show(page.items.length < PAGE);
          if (page.items.length < PAGE) break;
        }
        stop = events().subscribe(run, view.seq, {
          onEvent: take,
          onReset: () => void load(),
          onDenied: () => void queries.invalidateQueries({ queryKey: ["session"] }),
        });
      } catch (error) {
        if (!ended) setLog({ view, version: ++version, loaded: true, error });
      }
    };
    void load();
    return () => {
      ended = true;
      stop();
      if (timer !== null) clearTimeout(timer);
    };
  }, [run, queries]);
  return log;
}
