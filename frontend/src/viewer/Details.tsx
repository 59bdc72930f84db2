import { useQuery as useData } from "@tanstack/react-query";
import { getNode, type GraphView } from "../api/client";
import { bytes, count } from "../app/format";
import { ErrorBox } from "../app/messages";
import type { GraphModel } from "../graph/document";

interface Props {
  graphId: string;
  view: GraphView;
  model: GraphModel;
  selected: string | null;
  onSelect: (name: string) => void;
}

/** What is known of one instruction; its full text is fetched when it is looked at. */
export function Details({ graphId, view, model, selected, onSelect }: Props) {
  const node = selected === null ? -1 : model.find(selected);
  const details = useData({
    queryKey: ["node", graphId, view, selected],
    queryFn: () => getNode(graphId, view, selected!),
    enabled: node >= 0,
    staleTime: Infinity,
  });
  if (selected === null) {
    return <p className="muted">Click an instruction, or search for one: its shape, text, producers and consumers appear here.</p>;
  }
  if (node < 0) return <p className="muted">There is no “{selected}” in this view of the module.</p>;
  const attributes = Object.entries({ ...details.data?.attributes, ...details.data?.metadata });
  return (
    <div className="stack">
      <div>
        <h2 className="mono break">{selected}</h2>
        <p className="mono muted">{model.op[node]}</p>
      </div>
      <dl className="facts small">
        <dt>Shape</dt>
        <dd className="mono">{model.shape[node]}</dd>
        <dt>Result</dt>
        <dd className="number">{bytes(model.bytes[node])}</dd>
        <dt>Work</dt>
        <dd className="number">{count(model.flops[node])} flops</dd>
        <dt>In</dt>
        <dd className="mono">{model.groupName[model.group[node]!]}</dd>
      </dl>
      <section className="stack tight">
        <h3>As HLO</h3>
        {details.isPending && <p className="muted small">Fetching…</p>}
        {details.isError && <ErrorBox error={details.error} />}
        {details.data && (
          <pre className="code-block" tabIndex={0}>
            {details.data.line ?? "XLA prints no line of its own for this instruction."}
          </pre>
        )}
      </section>
      {attributes.length > 0 && (
        <section className="stack tight">
          <h3>Attributes and metadata</h3>
          <dl className="facts attributes small">
            {attributes.map(([name, value]) => (
              <Attribute key={name} name={name} value={value} />
            ))}
          </dl>
        </section>
      )}
      <Neighbours title="Reads from" nodes={model.producers(node)} model={model} onSelect={onSelect} />
      <Neighbours title="Read by" nodes={model.consumers(node)} model={model} onSelect={onSelect} />
    </div>
  );
}

function Attribute({ name, value }: { name: string; value: unknown }) {
  return (
    <>
      <dt>{name}</dt>
      <dd className="mono">{typeof value === "string" ? value : JSON.stringify(value, null, 1).replaceAll(/\s+/g, " ")}</dd>
    </>
  );
}

function Neighbours({ title, nodes, model, onSelect }: { title: string; nodes: number[]; model: GraphModel; onSelect: (name: string) => void }) {
  return (
    <section className="stack tight">
      <h3>
        {title} ({nodes.length})
      </h3>
      {nodes.length === 0 && <p className="muted small">nothing</p>}
      <ul className="link-list small">
        {nodes.map((node) => (
          <li key={node}>
            <button type="button" className="link mono truncate" onClick={() => onSelect(model.nodeName[node]!)}>
              {model.nodeName[node]}
            </button>
            <span className="mono muted nowrap truncate">{model.op[node]}</span>
          </li>
        ))}
      </ul>
    </section>
  );
}
