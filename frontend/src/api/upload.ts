import { csrfToken, type Graph } from "./client";
import { ApiError, problemOf } from "./problem";

/** Upload a module; `fetch` tells nothing about the way up, so this is an XMLHttpRequest. `onSent` gets 0 to 1. */
export function uploadGraph(file: File, onSent: (fraction: number) => void, signal: AbortSignal): Promise<Graph> {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open("POST", "/api/graphs");
    request.setRequestHeader("X-CSRFToken", csrfToken());
    request.upload.onprogress = ({ loaded, total }) => onSent(total > 0 ? loaded / total : 0);
    request.onload = () => {
      const body = parse(request.responseText);
      if (request.status >= 200 && request.status < 300) resolve(body as Graph);
      else reject(new ApiError(problemOf(request.status, body)));
    };
    request.onerror = () =>
      reject(new ApiError({ status: 0, code: "unreachable", title: "Upload broken off", detail: "The server cannot be reached, or it refused the file before it had all of it." }));
    request.onabort = () => reject(new DOMException("cancelled", "AbortError"));
    signal.addEventListener("abort", () => request.abort(), { once: true });
    const form = new FormData();
    form.append("file", file);
    request.send(form);
  });
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}
