/** A problem object as the server sends it (RFC 9457 with a place in the input and a hint). */
export interface Problem {
  status: number;
  code: string;
  title: string;
  detail: string;
  line?: number | null;
  column?: number | null;
  field?: string | null;
  hint?: string | null;
}

export class ApiError extends Error {
  constructor(readonly problem: Problem) {
    super(problem.detail);
  }
}

/** Read an error answer; one that is no problem object (a proxy's page, say) becomes one. */
export function problemOf(status: number, body: unknown): Problem {
  if (typeof body === "object" && body !== null && "detail" in body && typeof body.detail === "string") {
    return { code: "error", title: "Error", ...(body as Partial<Problem>), detail: body.detail, status };
  }
  if (status === 413) {
    return { status, code: "too-large", title: "Too large", detail: "The file is larger than the server takes." };
  }
  return { status, code: "error", title: `Error ${status}`, detail: `The server answered with status ${status}.` };
}

/** Make anything that was thrown a problem that can be shown. */
export function asProblem(error: unknown): Problem {
  if (error instanceof ApiError) return error.problem;
  const detail = error instanceof Error ? error.message : String(error);
  return { status: 0, code: "page", title: "Something went wrong in the page", detail };
}
