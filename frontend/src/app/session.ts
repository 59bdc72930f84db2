import type { QueryClient } from "@tanstack/react-query";
import type { Session } from "../api/client";

/** Take a new session in and forget what the old one was allowed to see. */
export function changeSession(queries: QueryClient, next: Session): void {
  // Not `clear`: it would take the session's own query away from the page that looks at it.
  queries.setQueryData(["session"], next);
  // After the pages of the old session are gone: a query that is still looked at would be asked again.
  setTimeout(() => queries.removeQueries({ predicate: ({ queryKey }) => queryKey[0] !== "session" }), 0);
}
