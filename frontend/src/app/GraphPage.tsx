import { useQuery as useData } from "@tanstack/react-query";
import { useMemo, useState } from "react";
import { getDocument, getGraph, graphFileUrl, type GraphView } from "../api/client";
import { GraphModel } from "../graph/document";
import { SearchForm } from "../runs/SearchForm";
import { Details } from "../viewer/Details";
import { GraphPanel } from "../viewer/GraphPanel";
import { bytes, count } from "./format";
import { ErrorBox, Notes, StateChip, Waiting } from "./messages";
import { setQuery, useQuery } from "./router";

const SOURCES: Record<string, string> = {
  "xla-cpu": "schedule from XLA:CPU",
  list: "memory-minimising list schedule",
  input: "schedule from the file",
};

export function GraphPage({ id }: { id: string }) {
  const graph = useData({
    queryKey: ["graph", id],
    queryFn: () => getGraph(id),
    refetchInterval: ({ state }) => (state.data?.state === "scheduling" ? 700 : false),
  });
  const [viewText, setView] = useQuery("view");
  const [selected] = useQuery("select");
  const [tab, setTab] = useState<"search" | "details">(selected ? "details" : "search");
  const ready = graph.data?.state === "ready";
  const view: GraphView = viewText === "source" ? "source" : viewText === "scheduled" ? "scheduled" : "source";
  const document = useData({
    queryKey: ["document", id, view],
    queryFn: () => getDocument(id, view),
    enabled: ready,
    staleTime: Infinity,
    gcTime: 600_000,
  });
  const model = useMemo(() => (document.data ? new GraphModel(document.data) : null), [document.data]);
  if (graph.isError) {
    return (
      <main className="page" id="main">
        <div className="content">
          <ErrorBox error={graph.error} />
        </div>
      </main>
    );
  }
  if (!graph.data) return <Waiting>Opening the module…</Waiting>;
  const select = (name: string | null) => {
    setQuery({ select: name });
    if (name !== null) setTab("details");
  };
  const facts = [
    graph.data.format,
    graph.data.instructions !== null && `${count(graph.data.instructions)} instructions`,
    graph.data.steps !== null && `${count(graph.data.steps)} steps`,
    graph.data.buffers !== null && `${count(graph.data.buffers)} buffers`,
    graph.data.peak_bytes !== null && `peak ${bytes(graph.data.peak_bytes)}`,
    graph.data.schedule_source && (SOURCES[graph.data.schedule_source] ?? graph.data.schedule_source),
  ].filter(Boolean);
  return (
    <main className="workspace" id="main" tabIndex={-1}>
      <div className="graph-page">
        <header className="page-head">
          <div className="row">
            <h1 className="truncate">{graph.data.title || graph.data.name}</h1>
            <StateChip state={graph.data.state} />
            <span className="small muted number">{facts.join(" · ")}</span>
            <span className="spacer" />
            <a className="small" href={graphFileUrl(id)} download>
              Download the file
            </a>
          </div>
          <Notes notes={graph.data.notes} open={graph.data.notes.length > 0 && graph.data.notes.length <= 2} />
          {graph.data.error && (
            <ErrorBox error={new Error(graph.data.error.message)}>
              {graph.data.error.line ? <p className="small">At line {graph.data.error.line}.</p> : null}
            </ErrorBox>
          )}
        </header>
        {document.isError ? (
          <div className="pad">
            <ErrorBox error={document.error} />
          </div>
        ) : model ? (
          <GraphPanel
            key={`${id} ${view}`}
            model={model}
            selected={selected}
            onSelect={select}
            shortcuts
            toolbar={
              <div className="segmented" role="group" aria-label="Which form of the module">
                <button type="button" aria-pressed={view === "source"} title="The module as it was uploaded" onClick={() => setView("source")}>
                  Source
                </button>
                <button
                  type="button"
                  aria-pressed={view === "scheduled"}
                  title="The module after XLA’s passes, in the order that the search maps"
                  onClick={() => setView("scheduled")}
                >
                  As scheduled
                </button>
              </div>
            }
          />
        ) : (
          <Waiting>
            {graph.data.state === "scheduling"
              ? "Scheduling: XLA compiles the module as far as its instruction order…"
              : graph.data.state === "failed"
                ? "There is no graph to show."
                : "Fetching the graph…"}
          </Waiting>
        )}
        <aside className="aside" aria-label="Search and details">
          <div className="tabs" role="tablist">
            <button type="button" role="tab" id="tab-search" aria-selected={tab === "search"} aria-controls="panel" onClick={() => setTab("search")}>
              Map its memory
            </button>
            <button type="button" role="tab" id="tab-details" aria-selected={tab === "details"} aria-controls="panel" onClick={() => setTab("details")}>
              Instruction
            </button>
          </div>
          <div className="tab-panel" role="tabpanel" id="panel" aria-labelledby={`tab-${tab}`}>
            {/* The form stays mounted, so that looking at an instruction does not empty it. */}
            <div hidden={tab !== "search"}>
              <SearchForm graph={graph.data} />
            </div>
            {tab === "details" &&
              (model ? (
                <Details graphId={id} view={view} model={model} selected={selected} onSelect={select} />
              ) : (
                <p className="muted">No graph yet.</p>
              ))}
          </div>
        </aside>
      </div>
    </main>
  );
}
