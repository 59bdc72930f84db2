import { layered } from "./layered";
import type { LayoutInput } from "./types";

export interface LayeredRequest {
  id: number;
  input: LayoutInput;
}

self.onmessage = (event: MessageEvent<LayeredRequest>) => {
  const { id, input } = event.data;
  try {
    const result = layered(input, { onProgress: (fraction) => self.postMessage({ id, progress: fraction }) });
    self.postMessage({ id, result });
  } catch (error) {
    self.postMessage({ id, error: error instanceof Error ? error.message : String(error) });
  }
};
