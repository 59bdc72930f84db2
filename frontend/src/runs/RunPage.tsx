import { useMutation, useQuery as useData, useQueryClient } from "@tanstack/react-query";
import { useCallback, useMemo, useState } from "react";
import {
  deleteRun,
  getDevices,
  getDocument,
  getGraph,
  getProgram,
  getRun,
  resumeRun,
  runAgain,
  runArchiveUrl,
  stopRun,
  type Run,
} from "../api/client";
import { bytes, count, duration, gap, picoseconds, rate, speedup, when } from "../app/format";
import { ErrorBox, StateChip, Waiting } from "../app/messages";
import { Link, navigate, useQuery } from "../app/router";
import { useConnection } from "../events/pageEvents";
import { GraphModel } from "../graph/document";
import { Details } from "../viewer/Details";
import { GraphPanel } from "../viewer/GraphPanel";
import { baseline } from "./baselines";
import { Downloads } from "./Downloads";
import { MemoryMap, Residency, KIND_TITLES } from "./MemoryMap";
import { instructionOf, MemoryMapModel, type BufferKind } from "./memoryMap";
import { ResidencyList } from "./ResidencyList";
import { RunChart } from "./RunChart";
import type { RunView } from "./runView";
import { useRunLog } from "./useRunLog";

const ACTIVE = new Set(["queued", "running", "stopping"]);
const KINDS: BufferKind[] = ["input", "intermediate", "output"];

export function RunPage({ id }: { id: string }) {
  const run = useData({
    queryKey: ["run", id],
    queryFn: () => getRun(id),
    refetchInterval: ({ state }) => (state.data && ACTIVE.has(state.data.state) ? 2_000 : false),
  });
  const log = useRunLog(id);
  if (run.isError) {
    return (
      <main className="page" id="main">
        <div className="content">
          <ErrorBox error={run.error} />
          <p>
            <Link href="/runs">All runs</Link>
          </p>
        </div>
      </main>
    );
  }
  if (!run.data) return <Waiting>Opening the run…</Waiting>;
  return <Loaded run={run.data} view={log.view} version={log.version} loaded={log.loaded} error={log.error} />;
}

interface LoadedProps {
  run: Run;
  view: RunView;
  version: number;
  loaded: boolean;
  error: unknown;
}

function Loaded({ run, view, version, loaded, error }: LoadedProps) {
  // The later of the two knows best: the answer to an action, or the log.
  const state = run.last_seq > view.seq || view.state === null ? run.state : view.state;
  const baselines = Object.keys(view.baselines).length > 0 ? view.baselines : run.baselines;
  const bound = view.bound ?? run.bound ?? null;
  const problem = run.error ?? (state === "failed" ? view.error : null);
  return (
    <main className="workspace" id="main" tabIndex={-1}>
      <div className="run-page">
        <Head run={run} state={state} />
        <div className="run-scroll">
          <div className="run-grid">
            {error !== null && (
              <div className="wide">
                <ErrorBox error={error} />
              </div>
            )}
            {state === "failed" && problem && (
              <div className="box bad wide" role="alert" data-testid="error-box">
                <strong className="break">{problem.message}</strong>
                {problem.code === "bug" && (
                  <p className="small">
                    This is a fault of Graphsmith, not of your module.{run.resumable && " The last checkpoint is kept: “Resume” goes on from it."}
                  </p>
                )}
                <p className="small muted">{problem.code}</p>
              </div>
            )}
            {(view.fits ?? run.fits) === true && (
              <div className="box info wide">
                <strong>Everything fits: nothing to search.</strong> All buffers have room in fast memory at once, so the first mapping is
                already the best. To see a search at work, <Link href={`/graphs/${run.graph}`}>start one with a smaller capacity</Link>.
              </div>
            )}
            <Figures run={run} state={state} view={view} baselines={baselines} bound={bound} />
            <RunChart series={view.series} version={version} baselines={baselines} bound={bound} />
            <Downloads run={run} state={state} archive={runArchiveUrl(run.id)} />
            <MapAndGraph run={run} view={view} version={version} loaded={loaded} state={state} />
            <Recipe run={run} log={view.log} />
          </div>
        </div>
      </div>
    </main>
  );
}

function Head({ run, state }: { run: Run; state: string }) {
  const queries = useQueryClient();
  const [asking, setAsking] = useState(false);
  const graph = useData({ queryKey: ["graph", run.graph], queryFn: () => getGraph(run.graph), staleTime: 60_000 });
  const settle = (next: Run) => {
    queries.setQueryData(["run", next.id], next);
    void queries.invalidateQueries({ queryKey: ["runs"] });
  };
  const stop = useMutation({ mutationFn: () => stopRun(run.id), onSuccess: settle });
  const resume = useMutation({ mutationFn: () => resumeRun(run.id), onSuccess: settle });
  const again = useMutation({
    mutationFn: () => runAgain(run.id),
    onSuccess: (next) => {
      settle(next);
      navigate(`/runs/${next.id}`);
    },
  });
  const remove = useMutation({
    mutationFn: () => deleteRun(run.id),
    onSuccess: () => {
      void queries.invalidateQueries({ queryKey: ["runs"] });
      navigate("/runs");
    },
  });
  const failure = stop.error ?? resume.error ?? again.error ?? remove.error;
  const over = !ACTIVE.has(state);
  return (
    <header className="page-head">
      <div className="row">
        <h1 className="truncate">
          <Link href={`/graphs/${run.graph}?view=scheduled`}>{graph.data?.title || run.graph_name}</Link> · {run.method}
        </h1>
        <StateChip state={state} position={run.position} testid="run-state" />
        {over && run.reason && run.reason !== state && <span className="small muted">{REASONS[run.reason] ?? run.reason}</span>}
        <Live active={!over} />
        <span className="spacer" />
        {!over && (
          <button type="button" data-testid="stop-run" disabled={state === "stopping" || stop.isPending} onClick={() => stop.mutate()}>
            {state === "stopping" ? "Stopping…" : "Stop"}
          </button>
        )}
        {over && run.resumable && (
          <button type="button" className="primary" data-testid="resume-run" disabled={resume.isPending} title="Go on from the last checkpoint, bit for bit" onClick={() => resume.mutate()}>
            Resume
          </button>
        )}
        {over && (
          <button type="button" data-testid="run-again" disabled={again.isPending} title="A new run with the same settings and seed" onClick={() => again.mutate()}>
            Run again
          </button>
        )}
        {asking ? (
          <>
            <button type="button" className="danger" data-testid="confirm-delete-run" disabled={remove.isPending} onClick={() => remove.mutate()}>
              Really delete
            </button>
            <button type="button" onClick={() => setAsking(false)}>
              Keep
            </button>
          </>
        ) : (
          <button type="button" className="quiet" data-testid="delete-run" onClick={() => setAsking(true)}>
            Delete
          </button>
        )}
      </div>
      {failure && <ErrorBox error={failure} />}
    </header>
  );
}

const REASONS: Record<string, string> = {
  evaluations: "the evaluations are used up",
  seconds: "the time is used up",
  target: "the target is reached",
  complete: "the method has nothing left to try",
  killed: "it did not end in time and was killed; it can start again",
};

function Live({ active }: { active: boolean }) {
  const connection = useConnection();
  if (!active && connection === "live") return null;
  const words: Record<string, string> = {
    live: "live",
    connecting: "connecting…",
    reconnecting: "reconnecting…",
    stale: "no word from the server",
    offline: "not connected",
  };
  if (!active) return null;
  return (
    <span className={`chip ${connection}`} role="status" data-testid="connection">
      {words[connection]}
    </span>
  );
}

interface FiguresProps {
  run: Run;
  state: string;
  view: RunView;
  baselines: Record<string, number>;
  bound: number | null;
}

function Figures({ run, state, view, baselines, bound }: FiguresProps) {
  const best = view.best ?? run.best ?? null;
  const evaluations = Math.max(view.evaluations, view.seq >= run.last_seq ? 0 : run.evaluations);
  const seconds = Math.max(view.seconds, view.seq >= run.last_seq ? 0 : run.seconds);
  const figures: [string, string, string?][] = [
    ["Over all-slow", speedup(baseline(baselines, "all-slow"), best), "Latency with everything in slow memory, divided by the best found"],
    ["Over XLA-style", speedup(baseline(baselines, "xla-style"), best), "Latency of the XLA-style heuristic, divided by the best found; below 1, the heuristic is better so far"],
    ["Over greedy", speedup(baseline(baselines, "greedy"), best), "Latency of the greedy mapping, divided by the best found"],
    ["Gap to the bound", gap(best, bound), "How far the best lies above what no mapping can beat"],
    ["Evaluations", count(evaluations)],
    ["Evaluations / s", rate(run.evaluations_per_second ?? (seconds > 0 ? evaluations / seconds : null)), "At this run’s average speed"],
    ["Elapsed", duration(seconds)],
    ["Time left", state === "running" ? duration(run.seconds_left) : "–", "Until the budget is used up, at this speed"],
  ];
  return (
    <dl className="figures wide">
      <div className="figure main">
        <dt>Best latency</dt>
        <dd data-testid="best-value" data-picoseconds={best ?? ""}>
          {picoseconds(best)}
        </dd>
      </div>
      {figures.map(([title, text, hint]) => (
        <div className="figure" key={title} title={hint}>
          <dt>{title}</dt>
          <dd>{text}</dd>
        </div>
      ))}
    </dl>
  );
}

function MapAndGraph({ run, view, version, loaded, state }: { run: Run; view: RunView; version: number; loaded: boolean; state: string }) {
  const program = useData({ queryKey: ["program", run.graph], queryFn: () => getProgram(run.graph), staleTime: Infinity });
  const document = useData({ queryKey: ["document", run.graph, "scheduled"], queryFn: () => getDocument(run.graph, "scheduled"), staleTime: Infinity });
  const graph = useData({ queryKey: ["graph", run.graph], queryFn: () => getGraph(run.graph), staleTime: 60_000 });
  const devices = useData({ queryKey: ["devices"], queryFn: getDevices, staleTime: Infinity });
  const [selected, setSelected] = useQuery("select");
  const [buffer, setBuffer] = useState(-1);
  const map = view.map;
  const model = useMemo(() => (program.data && map ? new MemoryMapModel(program.data, map) : null), [program.data, map]);
  const graphModel = useMemo(() => (document.data ? new GraphModel(document.data) : null), [document.data]);
  const capacity =
    run.capacity ?? tomlCapacity(run.device_toml) ?? devices.data?.find(({ name }) => name === run.device)?.capacity_bytes ?? null;

  const marked = useMemo<ReadonlySet<number>>(() => {
    const found = new Set<number>();
    if (!model) return found;
    if (buffer >= 0) model.map.buffer.forEach((owner, residency) => owner === buffer && found.add(residency));
    else if (selected !== null) for (const residency of model.ofInstruction(selected)) found.add(residency);
    return found;
  }, [model, buffer, selected]);

  const pick = useCallback(
    (residency: number) => {
      if (residency < 0 || !model) {
        setBuffer(-1);
        setSelected(null);
        return;
      }
      setBuffer(model.map.buffer[residency]!);
      setSelected(instructionOf(model.bufferName(residency)));
    },
    // eslint-disable-next-line react-hooks/exhaustive-deps
    [model],
  );
  const select = (name: string | null) => {
    setBuffer(-1);
    setSelected(name);
  };
  const chosen = [...marked][0];
  const failure = program.error ?? document.error ?? graph.error;
  return (
    <>
      <section className="card wide" aria-label="Memory map">
        <div className="panel-head">
          <h2>Memory map</h2>
          <div className="legend">
            {KINDS.map((kind) => (
              <span key={kind}>
                <span className="swatch" style={{ background: `var(--map-${kind})` }} />
                {KIND_TITLES[kind]}
              </span>
            ))}
            <span>
              <span className="swatch faded" />
              being copied
            </span>
          </div>
          <span className="small muted">Wheel: zoom (Shift: steps only, Alt: bytes only) · drag: move · double-click: all</span>
        </div>
        {failure && <ErrorBox error={failure} />}
        {model && capacity !== null ? (
          <div className="map-grid">
            <MemoryMap model={model} capacity={capacity} marked={marked} step={selected === null ? -1 : model.stepOf(selected)} onPick={pick} />
            <div className="map-side">
              <ResidencyList
                model={model}
                marked={marked}
                onPick={pick}
                onOpen={(residency) => {
                  pick(residency);
                  window.document.getElementById("run-graph")?.scrollIntoView({ block: "nearest" });
                }}
              />
              <div className="map-chosen">
                {chosen !== undefined ? (
                  <Residency model={model} residency={chosen} />
                ) : selected !== null && model.buffersOf(selected).length > 0 ? (
                  <span>
                    <strong className="mono">{selected}</strong> stays in slow memory in this mapping.
                  </span>
                ) : (
                  <span className="muted">Click a rectangle, or choose with ↑ ↓ in the list, to see what it is; it is shown in the graph as well.</span>
                )}
              </div>
            </div>
          </div>
        ) : (
          <p className="pad muted">
            {!loaded || program.isPending
              ? "Loading…"
              : state === "queued"
                ? "The run waits for its turn; the first mapping appears here as soon as it starts."
                : state === "running"
                  ? "Starting: the search loads the program and prices the baselines; the first mapping follows…"
                  : "This run ended before it had a mapping."}
          </p>
        )}
      </section>
      <section className="card wide" aria-label="Graph" id="run-graph">
        <div className="panel-head">
          <h2>Module as scheduled</h2>
          <span className="small muted">A selection here and in the memory map is the same.</span>
        </div>
        <div className="map-grid run-graph">
          {graphModel ? (
            <GraphPanel model={graphModel} selected={selected} onSelect={select} shortcuts={false} />
          ) : (
            <Waiting>Fetching the graph…</Waiting>
          )}
          <div className="map-side scroll pad">
            {graphModel && <Details graphId={run.graph} view="scheduled" model={graphModel} selected={selected} onSelect={select} />}
          </div>
        </div>
      </section>
      {/* The version is what makes this component look at the growing view again. */}
      <span hidden data-version={version} />
    </>
  );
}

function tomlCapacity(toml: string | null | undefined): number | null {
  const found = toml ? /^\s*capacity_bytes\s*=\s*([\d_]+)/m.exec(toml) : null;
  return found ? Number(found[1]!.replaceAll("_", "")) : null;
}

function Recipe({ run, log }: { run: Run; log: string[] }) {
  const budget = [
    run.budget.evaluations && `${count(run.budget.evaluations)} evaluations`,
    run.budget.seconds && `${count(run.budget.seconds)} s`,
    run.budget.target && `latency ${picoseconds(run.budget.target)}`,
  ].filter(Boolean);
  const facts: [string, string][] = [
    ["Device", run.device],
    ["Fast memory", run.capacity ? bytes(run.capacity) : "the device’s own"],
    ["Method", run.method],
    ["Stops after", budget.join(" or ")],
    ["Seed", String(run.seed)],
    ["Owner", run.owner],
    ["Queued", when(run.created)],
    ["Started", when(run.started)],
    ["Ended", when(run.finished)],
    ["Attempt", String(run.attempt)],
    ["Graphsmith", run.version],
  ];
  const settings = Object.entries(run.settings).filter(([name]) => name !== "method");
  return (
    <section className="card wide pad" aria-label="Recipe">
      <h2>Recipe</h2>
      <div className="recipe small">
        <dl className="facts">
          {facts.map(([title, text]) => (
            <Fact key={title} title={title} text={text} />
          ))}
        </dl>
        <dl className="facts">
          {settings.map(([title, value]) => (
            <Fact key={title} title={title.replaceAll("_", " ")} text={typeof value === "object" ? JSON.stringify(value) : String(value)} />
          ))}
        </dl>
      </div>
      {log.length > 0 && (
        <details className="notes">
          <summary>Log ({log.length} lines)</summary>
          <pre className="code-block">{log.join("\n")}</pre>
        </details>
      )}
    </section>
  );
}

function Fact({ title, text }: { title: string; text: string }) {
  return (
    <>
      <dt>{title}</dt>
      <dd className="number">{text}</dd>
    </>
  );
}
