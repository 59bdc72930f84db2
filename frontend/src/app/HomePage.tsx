import { useMutation, useQuery as useData, useQueryClient } from "@tanstack/react-query";
import { useEffect, useRef, useState } from "react";
import { deleteGraph, getGraphs, getSession, type Graph } from "../api/client";
import { uploadGraph } from "../api/upload";
import { bytes, count, limit, when } from "./format";
import { ErrorBox, Notes, StateChip } from "./messages";
import { Link, navigate } from "./router";

export function HomePage() {
  const graphs = useData({
    queryKey: ["graphs"],
    queryFn: getGraphs,
    refetchInterval: ({ state }) => (state.data?.some((graph) => graph.state === "scheduling") ? 1_000 : 15_000),
  });
  useEffect(() => {
    // While people choose, the graph page and its layout worker get ready.
    const timer = setTimeout(() => void import("../viewer/GraphPanel").then(({ warmLayout }) => warmLayout()), 300);
    return () => clearTimeout(timer);
  }, []);
  const own = graphs.data?.filter((graph) => !graph.example) ?? [];
  const examples = graphs.data?.filter((graph) => graph.example) ?? [];
  return (
    <main className="page" id="main">
      <div className="content">
        <div>
          <h1>Where should a program’s tensors live?</h1>
          <p className="muted">
            Give Graphsmith an XLA HLO module. It finds which buffers to keep in the chip’s small fast memory, when to
            bring them there and at which offset, shows the search live, and hands you the mapping.
          </p>
        </div>
        <Upload />
        {graphs.isError && <ErrorBox error={graphs.error} />}
        <section className="stack tight" aria-labelledby="own">
          <h2 id="own">Your modules</h2>
          <div className="card graph-list">
            {graphs.isPending && <p className="pad muted">Loading…</p>}
            {own.map((graph) => (
              <GraphRow key={graph.id} graph={graph} />
            ))}
            {graphs.data && own.length === 0 && (
              <p className="pad muted">
                Nothing here yet. Drop a dump anywhere on this page, for instance the{" "}
                <code>*.before_optimizations.txt</code> that XLA writes with <code>XLA_FLAGS=--xla_dump_to=DIR</code>, or
                open an example below.
              </p>
            )}
          </div>
        </section>
        <section className="stack tight" aria-labelledby="examples">
          <h2 id="examples">Examples</h2>
          <div className="card graph-list">
            {examples.map((graph) => (
              <GraphRow key={graph.id} graph={graph} />
            ))}
            {graphs.data && examples.length === 0 && <p className="pad muted">The examples are still being made; they appear here by themselves.</p>}
          </div>
        </section>
      </div>
    </main>
  );
}

interface Sending {
  name: string;
  sent: number;
  abort: AbortController;
}

function Upload() {
  const queries = useQueryClient();
  const session = useData({ queryKey: ["session"], queryFn: getSession });
  const input = useRef<HTMLInputElement>(null);
  const [over, setOver] = useState(false);
  const [sending, setSending] = useState<Sending | null>(null);
  const [failure, setFailure] = useState<{ name: string; error: unknown } | null>(null);

  const send = async (file: File) => {
    const abort = new AbortController();
    setFailure(null);
    setSending({ name: file.name, sent: 0, abort });
    try {
      const graph = await uploadGraph(file, (sent) => setSending({ name: file.name, sent, abort }), abort.signal);
      await queries.invalidateQueries({ queryKey: ["graphs"] });
      navigate(`/graphs/${graph.id}`);
    } catch (error) {
      if (!(error instanceof DOMException && error.name === "AbortError")) setFailure({ name: file.name, error });
    } finally {
      setSending(null);
    }
  };
  const latest = useRef(send);
  useEffect(() => {
    latest.current = send;
  });

  useEffect(() => {
    let depth = 0;
    const files = (event: DragEvent) => event.dataTransfer?.types.includes("Files") ?? false;
    const enter = (event: DragEvent) => {
      if (files(event) && ++depth === 1) setOver(true);
    };
    const leave = (event: DragEvent) => {
      if (files(event) && --depth === 0) setOver(false);
    };
    const hover = (event: DragEvent) => {
      if (files(event)) event.preventDefault();
    };
    const drop = (event: DragEvent) => {
      if (!files(event)) return;
      event.preventDefault();
      depth = 0;
      setOver(false);
      const file = event.dataTransfer?.files[0];
      if (file) void latest.current(file);
    };
    window.addEventListener("dragenter", enter);
    window.addEventListener("dragleave", leave);
    window.addEventListener("dragover", hover);
    window.addEventListener("drop", drop);
    return () => {
      window.removeEventListener("dragenter", enter);
      window.removeEventListener("dragleave", leave);
      window.removeEventListener("dragover", hover);
      window.removeEventListener("drop", drop);
    };
  }, []);

  return (
    <section className="stack tight" aria-label="Upload">
      {over && <div className="drop-veil">Drop the module to open it</div>}
      <div className="dropzone">
        <svg viewBox="0 0 40 40" fill="none" stroke="currentColor" strokeWidth="2.4" aria-hidden="true">
          <path d="M20 26V6m0 0l-8 8m8-8l8 8M6 24v8a2 2 0 002 2h24a2 2 0 002-2v-8" />
        </svg>
        {sending ? (
          <div className="stack tight" role="status">
            <p>
              {sending.sent < 1 ? `Sending ${sending.name}…` : `Reading ${sending.name} with XLA’s parser…`}
            </p>
            {sending.sent < 1 ? <progress value={sending.sent} aria-label="Upload" /> : <progress aria-label="Parsing" />}
          </div>
        ) : (
          <div>
            <p>
              <strong>Drop a module anywhere on this page</strong>, or choose a file.
            </p>
            <p className="small muted">
              HLO text, serialized HLO proto, or StableHLO; plain or gzip.
              {session.data && ` Up to ${limit(session.data.upload_limit_bytes)} unpacked.`}
            </p>
          </div>
        )}
        {sending ? (
          <button type="button" onClick={() => sending.abort.abort()}>
            Cancel
          </button>
        ) : (
          <button type="button" className="primary" onClick={() => input.current?.click()}>
            Choose a file
          </button>
        )}
        <input
          ref={input}
          type="file"
          className="visually-hidden"
          tabIndex={-1}
          aria-label="Module file"
          data-testid="upload-input"
          onChange={(event) => {
            const file = event.target.files?.[0];
            event.target.value = "";
            if (file) void send(file);
          }}
        />
      </div>
      {failure && (
        <ErrorBox error={failure.error} onClose={() => setFailure(null)}>
          <p className="small muted">File: {failure.name}. Nothing was stored.</p>
        </ErrorBox>
      )}
    </section>
  );
}

function GraphRow({ graph }: { graph: Graph }) {
  const queries = useQueryClient();
  const [asking, setAsking] = useState(false);
  const remove = useMutation({
    mutationFn: () => deleteGraph(graph.id),
    onSuccess: () => queries.invalidateQueries({ queryKey: ["graphs"] }),
  });
  const facts = [
    graph.format,
    graph.instructions !== null && `${count(graph.instructions)} instructions`,
    graph.buffers !== null && `${count(graph.buffers)} buffers`,
    graph.peak_bytes !== null && `peak ${bytes(graph.peak_bytes)}`,
    bytes(graph.bytes),
    !graph.example && when(graph.created),
  ].filter(Boolean);
  return (
    <div className="graph-row" data-testid="graph-row" data-state={graph.state} data-name={graph.name}>
      <div className="grow">
        <Link className="title break" href={`/graphs/${graph.id}`}>
          {graph.title || graph.name}
        </Link>
        <p className="small muted">{facts.join(" · ")}</p>
      </div>
      <StateChip state={graph.state} />
      <div className="row">
        {graph.example ? (
          <span className="chip plain">example</span>
        ) : asking ? (
          <>
            <button type="button" className="danger" disabled={remove.isPending} onClick={() => remove.mutate()}>
              Really delete
            </button>
            <button type="button" onClick={() => setAsking(false)}>
              Keep
            </button>
          </>
        ) : (
          <button type="button" className="quiet" aria-label={`Delete ${graph.name}`} onClick={() => setAsking(true)}>
            Delete
          </button>
        )}
      </div>
      {remove.isError && <ErrorBox error={remove.error} onClose={() => remove.reset()} />}
      {graph.error && (
        <div className="box bad small">
          {graph.error.message}
          {graph.error.line ? ` (line ${graph.error.line}${graph.error.column ? `, column ${graph.error.column}` : ""})` : ""}
        </div>
      )}
      <Notes notes={graph.notes} />
    </div>
  );
}
