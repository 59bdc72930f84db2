import { useInfiniteQuery, useMutation, useQuery as useData, useQueryClient } from "@tanstack/react-query";
import { useEffect, useMemo, useState } from "react";
import { getGraphs, getRuns, getSession, moveRun, stopRun, type Run } from "../api/client";
import { bytes, duration, picoseconds, speedup, when } from "../app/format";
import { ErrorBox, StateChip } from "../app/messages";
import { Link } from "../app/router";
import { events } from "../events/pageEvents";
import { baseline } from "./baselines";

const ACTIVE = new Set(["queued", "running", "stopping"]);
const REFRESH_MS = 500;

export function RunsPage() {
  const queries = useQueryClient();
  const session = useData({ queryKey: ["session"], queryFn: getSession });
  const pages = useInfiniteQuery({
    queryKey: ["runs"],
    queryFn: ({ pageParam }) => getRuns(pageParam),
    initialPageParam: null as string | null,
    getNextPageParam: (last) => last.next,
    refetchInterval: ({ state }) => (state.data?.pages.some((page) => page.items.some((run) => ACTIVE.has(run.state))) ? 3_000 : 15_000),
  });
  const runs = useMemo(() => pages.data?.pages.flatMap((page) => page.items) ?? [], [pages.data]);
  useDoorbells(runs);
  const queue = runs.filter((run) => run.state === "queued").sort((a, b) => (a.position ?? 0) - (b.position ?? 0));
  const graphs = useData({ queryKey: ["graphs"], queryFn: getGraphs, staleTime: 60_000 });
  const titles = useMemo(() => new Map(graphs.data?.map(({ id, title }) => [id, title])), [graphs.data]);
  const me = session.data?.user?.username ?? "";
  const refresh = () => queries.invalidateQueries({ queryKey: ["runs"] });
  const stop = useMutation({ mutationFn: stopRun, onSuccess: refresh });
  const move = useMutation({ mutationFn: ({ id, before }: { id: string; before: string | null }) => moveRun(id, before), onSuccess: refresh });
  const failure = pages.error ?? stop.error ?? move.error;

  const moves = (run: Run) => {
    const own = queue.filter((queued) => queued.owner === run.owner);
    const at = own.findIndex((queued) => queued.id === run.id);
    return {
      up: at > 0 ? () => move.mutate({ id: run.id, before: own[at - 1]!.id }) : null,
      down: at >= 0 && at < own.length - 1 ? () => move.mutate({ id: run.id, before: own[at + 2]?.id ?? null }) : null,
    };
  };
  const ordered = [...queue, ...runs.filter((run) => run.state !== "queued")];
  return (
    <main className="page" id="main">
      <div className="content">
        <div>
          <h1>Runs</h1>
          <p className="muted">A run goes on when you close the page. Queued runs start in the order shown; owners take turns.</p>
        </div>
        {failure && <ErrorBox error={failure} />}
        <div className="card table-wrap">
          {pages.isPending ? (
            <p className="pad muted">Loading…</p>
          ) : runs.length === 0 ? (
            <p className="pad muted">
              No runs yet. <Link href="/">Open a module</Link>, choose a device and a method beside its graph, and press “Start the search”.
            </p>
          ) : (
            <table>
              <thead>
                <tr>
                  <th>Module</th>
                  <th>State</th>
                  <th className="right">Best</th>
                  <th className="right" title="Latency with everything in slow memory, divided by the best found">
                    Over all-slow
                  </th>
                  <th>Device</th>
                  <th>Started</th>
                  <th className="right">Took</th>
                  <th>Owner</th>
                  <th aria-label="Actions" />
                </tr>
              </thead>
              <tbody>
                {ordered.map((run) => {
                  const { up, down } = moves(run);
                  return (
                    <tr key={run.id} data-testid="run-row" data-state={run.state}>
                      <td>
                        <Link className="break" href={`/runs/${run.id}`}>
                          {titles.get(run.graph) || run.graph_name}
                        </Link>
                        <div className="small muted">
                          {run.method} · seed {run.seed}
                          {run.capacity ? ` · ${bytes(run.capacity)} of fast memory` : ""}
                        </div>
                      </td>
                      <td>
                        <StateChip state={run.state} position={run.position} />
                        {run.error && <div className="small muted run-error">{run.error.message}</div>}
                      </td>
                      <td className="right number nowrap">{picoseconds(run.best)}</td>
                      <td className="right number nowrap">{speedup(baseline(run.baselines, "all-slow"), run.best)}</td>
                      <td className="nowrap">{run.device}</td>
                      <td className="nowrap">{when(run.started)}</td>
                      <td className="right number nowrap">{run.started ? duration(run.seconds) : "–"}</td>
                      <td>{run.owner}</td>
                      <td className="right">
                        <div className="row end">
                          {run.state === "queued" && run.owner === me && (
                            <>
                              <button type="button" className="icon" aria-label="Earlier" title="Earlier" disabled={!up || move.isPending} onClick={() => up?.()}>
                                ↑
                              </button>
                              <button type="button" className="icon" aria-label="Later" title="Later" disabled={!down || move.isPending} onClick={() => down?.()}>
                                ↓
                              </button>
                            </>
                          )}
                          {ACTIVE.has(run.state) && (
                            <button type="button" disabled={run.state === "stopping"} onClick={() => stop.mutate(run.id)}>
                              {run.state === "stopping" ? "Stopping…" : "Stop"}
                            </button>
                          )}
                        </div>
                      </td>
                    </tr>
                  );
                })}
              </tbody>
            </table>
          )}
        </div>
        {pages.hasNextPage && (
          <div>
            <button type="button" disabled={pages.isFetchingNextPage} onClick={() => void pages.fetchNextPage()}>
              Older runs
            </button>
          </div>
        )}
      </div>
    </main>
  );
}

/** Follow the active runs; anything new in one of them reads the list again, at most twice a second. */
function useDoorbells(runs: Run[]): void {
  const queries = useQueryClient();
  const [bell] = useState(() => {
    let timer: ReturnType<typeof setTimeout> | null = null;
    return () => {
      timer ??= setTimeout(() => {
        timer = null;
        void queries.invalidateQueries({ queryKey: ["runs"] });
      }, REFRESH_MS);
    };
  });
  const active = runs.filter((run) => ACTIVE.has(run.state)).map((run) => run.id);
  const ids = active.slice(0, 20).join(" ");
  const seqs = useMemo(() => new Map(runs.map((run) => [run.id, run.last_seq])), [runs]);
  useEffect(() => {
    if (ids === "") return;
    const stops = ids.split(" ").map((id) =>
      events().subscribe(id, seqs.get(id) ?? 0, { onEvent: bell, onReset: bell, onDenied: bell }),
    );
    return () => stops.forEach((stop) => stop());
    // Where to start matters at the first subscription only.
    // eslint-disable-next-line react-hooks/exhaustive-deps
  }, [ids, bell]);
}
