import { useEffect, useMemo, useRef, useState } from "react";
import type { GraphModel } from "../graph/document";
import type { OpenBoxes } from "../graph/groups";
import { AutoEngine } from "../layout/engine";
import { SceneBuilder, type Scene } from "../layout/scene";
import { LayoutCancelled } from "../layout/types";

export interface SceneState {
  scene: Scene | null;
  /** 0 to 1 while a layout is under way, else null. */
  progress: number | null;
  error: string | null;
  cancel: () => void;
}

const engine = new AutoEngine();

/** Start the layout workers before the first graph is there. */
export function warmLayout(): void {
  engine.warm();
}

/** The scene of what is open; while a new one is laid out the old one stays. `onCancel` gets what was shown before. */
export function useScene(model: GraphModel, open: OpenBoxes, onCancel: (shown: OpenBoxes) => void): SceneState {
  const builder = useMemo(() => new SceneBuilder(model, engine), [model]);
  const [scene, setScene] = useState<Scene | null>(null);
  const [progress, setProgress] = useState<number | null>(0);
  const [error, setError] = useState<string | null>(null);
  const abort = useRef<AbortController | null>(null);
  const shown = useRef<OpenBoxes>(new Set<number>());

  useEffect(() => {
    const controller = new AbortController();
    abort.current = controller;
    setError(null);
    setProgress(0);
    builder.build(open, controller.signal, (fraction) => {
      if (!controller.signal.aborted) setProgress(fraction);
    }).then(
      (next) => {
        if (controller.signal.aborted) return;
        shown.current = open;
        setScene(next);
        setProgress(null);
      },
      (problem: unknown) => {
        if (controller.signal.aborted || problem instanceof LayoutCancelled) return;
        setProgress(null);
        setError(problem instanceof Error ? problem.message : String(problem));
      },
    );
    return () => controller.abort();
  }, [builder, open]);

  const cancel = () => {
    abort.current?.abort();
    setProgress(null);
    if (shown.current !== open) onCancel(shown.current);
  };
  return { scene, progress, error, cancel };
}
