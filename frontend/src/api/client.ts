import createClient from "openapi-fetch";
import type { GraphDocument } from "../graph/document";
import type { ProgramColumns } from "../runs/memoryMap";
import { ApiError, problemOf } from "./problem";
import type { components, paths } from "./schema";

export type Session = components["schemas"]["SessionOut"];
export type User = components["schemas"]["UserOut"];
export type Graph = components["schemas"]["GraphOut"];
export type Run = components["schemas"]["RunOut"];
export type RunIn = components["schemas"]["RunIn"];
export type Budget = components["schemas"]["Budget"];
export type Device = components["schemas"]["DeviceOut"];
export type Method = components["schemas"]["MethodOut"];
export type Preview = components["schemas"]["PreviewOut"];
export type NodeDetails = components["schemas"]["NodeOut"];
export type ApiKey = components["schemas"]["KeyOut"];
export type GraphView = "source" | "scheduled";

const api = createClient<paths>({ baseUrl: "/", credentials: "same-origin" });

api.use({
  onRequest({ request }) {
    if (request.method !== "GET") request.headers.set("X-CSRFToken", csrfToken());
    return request;
  },
});

export function csrfToken(): string {
  return /(?:^|; )csrftoken=([^;]+)/.exec(document.cookie)?.[1] ?? "";
}

/** Give the data of an answer, or throw its problem. */
async function unwrap<T>(answer: Promise<{ data?: T; error?: unknown; response: Response }>): Promise<T> {
  let result: { data?: T; error?: unknown; response: Response };
  try {
    result = await answer;
  } catch (error) {
    if (error instanceof DOMException) throw error;
    throw new ApiError({ status: 0, code: "unreachable", title: "No answer", detail: "The server cannot be reached.", hint: "Is it still running?" });
  }
  if (!result.response.ok) throw new ApiError(problemOf(result.response.status, result.error));
  return result.data as T;
}

export const getSession = (): Promise<Session> => unwrap(api.GET("/api/session"));
export const login = (username: string, password: string): Promise<Session> => unwrap(api.POST("/api/login", { body: { username, password } }));
export const loginLocal = (): Promise<Session> => unwrap(api.POST("/api/login/local"));
export const logout = (): Promise<unknown> => unwrap(api.POST("/api/logout"));
export const changePassword = (current: string, next: string): Promise<unknown> =>
  unwrap(api.POST("/api/password", { body: { current, new: next } }));

export const getKeys = (): Promise<ApiKey[]> => unwrap(api.GET("/api/keys"));
export const createKey = (name: string) => unwrap(api.POST("/api/keys", { body: { name } }));
export const deleteKey = (id: number): Promise<unknown> => unwrap(api.DELETE("/api/keys/{key_id}", { params: { path: { key_id: id } } }));

export const getDevices = (): Promise<Device[]> => unwrap(api.GET("/api/devices"));
export const getMethods = (): Promise<Method[]> => unwrap(api.GET("/api/methods"));

export async function getGraphs(): Promise<Graph[]> {
  const all: Graph[] = [];
  let cursor: string | null = null;
  do {
    const page: components["schemas"]["GraphPage"] = await unwrap(api.GET("/api/graphs", { params: { query: { cursor, limit: 200 } } }));
    all.push(...page.items);
    cursor = page.next ?? null;
  } while (cursor !== null);
  return all;
}

export const getGraph = (id: string): Promise<Graph> => unwrap(api.GET("/api/graphs/{graph_id}", { params: { path: { graph_id: id } } }));
export const deleteGraph = (id: string): Promise<unknown> =>
  unwrap(api.DELETE("/api/graphs/{graph_id}", { params: { path: { graph_id: id } } }));
export const getDocument = (id: string, view: GraphView): Promise<GraphDocument> =>
  unwrap(api.GET("/api/graphs/{graph_id}/document", { params: { path: { graph_id: id }, query: { view } } }));
export const getProgram = (id: string): Promise<ProgramColumns> =>
  unwrap(api.GET("/api/graphs/{graph_id}/program", { params: { path: { graph_id: id } } }));
export const getNode = (id: string, view: GraphView, name: string): Promise<NodeDetails> =>
  unwrap(api.GET("/api/graphs/{graph_id}/nodes/{view}/{name}", { params: { path: { graph_id: id, view, name } } }));
export const getPreview = (id: string, device: string, capacity: number | null, signal?: AbortSignal): Promise<Preview> =>
  unwrap(api.GET("/api/graphs/{graph_id}/preview", { params: { path: { graph_id: id }, query: { device, capacity } }, signal }));
export const graphFileUrl = (id: string): string => `/api/graphs/${id}/file`;

export const getRuns = (cursor: string | null): Promise<components["schemas"]["RunPage"]> =>
  unwrap(api.GET("/api/runs", { params: { query: { cursor, limit: 50 } } }));
export const getRun = (id: string): Promise<Run> => unwrap(api.GET("/api/runs/{run_id}", { params: { path: { run_id: id } } }));
export const createRun = (body: RunIn, idempotencyKey: string): Promise<Run> =>
  unwrap(api.POST("/api/runs", { body, params: { header: { "Idempotency-Key": idempotencyKey } } }));
export const deleteRun = (id: string): Promise<unknown> => unwrap(api.DELETE("/api/runs/{run_id}", { params: { path: { run_id: id } } }));
export const stopRun = (id: string): Promise<Run> => unwrap(api.POST("/api/runs/{run_id}/stop", { params: { path: { run_id: id } } }));
export const resumeRun = (id: string): Promise<Run> => unwrap(api.POST("/api/runs/{run_id}/resume", { params: { path: { run_id: id } } }));
export const runAgain = (id: string): Promise<Run> => unwrap(api.POST("/api/runs/{run_id}/again", { params: { path: { run_id: id } } }));
export const moveRun = (id: string, before: string | null): Promise<Run> =>
  unwrap(api.POST("/api/runs/{run_id}/move", { params: { path: { run_id: id } }, body: { before } }));
export const getEvents = (id: string, after: number, limit: number): Promise<components["schemas"]["EventPage"]> =>
  unwrap(api.GET("/api/runs/{run_id}/events", { params: { path: { run_id: id }, query: { after, limit } } }));
export const runArchiveUrl = (id: string): string => `/api/runs/${id}/archive`;
