import { LayoutCancelled, type LayoutEngine, type LayoutInput, type LayoutResult } from "./types";

type Answer = { id: number; progress: number } | { id: number; result: LayoutResult } | { id: number; error: string };

/** Runs the layered layout in a worker; a cancelled layout ends its worker, since a busy one hears no message. */
export class LayeredEngine implements LayoutEngine {
  private worker: Worker | null = null;
  private nextId = 1;

  layout(input: LayoutInput, signal: AbortSignal, onProgress: (fraction: number) => void): Promise<LayoutResult> {
    const worker = (this.worker ??= new Worker(new URL("./layered.worker.ts", import.meta.url), { type: "module" }));
    const id = this.nextId++;
    return new Promise((resolve, reject) => {
      const end = () => {
        worker.removeEventListener("message", onMessage);
        worker.removeEventListener("error", onError);
        signal.removeEventListener("abort", onAbort);
      };
      const onMessage = ({ data }: MessageEvent<Answer>) => {
        if (data.id !== id) return;
        if ("progress" in data) return onProgress(data.progress);
        end();
        if ("result" in data) resolve(data.result);
        else reject(new Error(data.error));
      };
      const onError = (event: ErrorEvent) => {
        end();
        this.dispose();
        reject(new Error(`the layout worker failed: ${event.message || "it could not be started"}`));
      };
      const onAbort = () => {
        end();
        this.dispose();
        reject(new LayoutCancelled());
      };
      if (signal.aborted) return onAbort();
      worker.addEventListener("message", onMessage);
      worker.addEventListener("error", onError);
      signal.addEventListener("abort", onAbort);
      worker.postMessage({ id, input });
    });
  }

  dispose(): void {
    this.worker?.terminate();
    this.worker = null;
  }
}
