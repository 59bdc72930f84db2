import { useSyncExternalStore } from "react";
import { EventClient, pageEvents, type Connection } from "./socket";

let client: EventClient | null = null;

/** The one event client of this page. */
export function events(): EventClient {
  return (client ??= pageEvents());
}

export function useConnection(): Connection {
  return useSyncExternalStore(
    (callback) => events().watch(callback),
    () => events().connection,
  );
}
