import type { Run } from "../api/client";
import { bytes } from "../app/format";

/** What each kind of file is for. */
const PURPOSES: [RegExp, string][] = [
  [/\.json$/, "the mapping with its recipe, in the documented schema"],
  [/\.hlo(\.txt)?$|\.txt$/, "the module with memory spaces and copies, as XLA’s parser reads it"],
  [/\.csv$/, "the residencies as a table"],
  [/\.svg$/, "the memory map as a picture"],
];

export function Downloads({ run, state, archive }: { run: Run; state: string; archive: string }) {
  return (
    <section className="card" aria-label="Downloads">
      <div className="panel-head">
        <h2>Downloads</h2>
        {run.artifacts.length > 0 && (
          <a className="button" href={archive} download data-testid="download-archive">
            All as zip
          </a>
        )}
      </div>
      {run.artifacts.length === 0 ? (
        <p className="pad muted">
          {state === "running" || state === "queued" || state === "stopping"
            ? "The files are written when the search ends or is stopped. Stop it any time: the best mapping so far is kept, and the search can be resumed."
            : "This run left no files."}
        </p>
      ) : (
        <ul className="downloads">
          {run.artifacts.map((artifact) => (
            <li key={artifact.name}>
              <div className="grow">
                <a className="mono" href={artifact.url} download data-testid={`download-${artifact.name}`}>
                  {artifact.name}
                </a>
                <p className="small muted">{PURPOSES.find(([pattern]) => pattern.test(artifact.name))?.[1] ?? "file of this run"}</p>
              </div>
              <span className="small number nowrap" title={`sha256 ${artifact.sha256}`}>
                {bytes(artifact.bytes)} · <code>{artifact.sha256.slice(0, 8)}</code>
              </span>
            </li>
          ))}
        </ul>
      )}
    </section>
  );
}
