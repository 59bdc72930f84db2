import type { ReactNode } from "react";
import { asProblem } from "../api/problem";

/** Say what is wrong, where, and what may help. */
export function ErrorBox({ error, onClose, children }: { error: unknown; onClose?: () => void; children?: ReactNode }) {
  const problem = asProblem(error);
  const place = [
    problem.line ? `line ${problem.line}` : null,
    problem.column ? `column ${problem.column}` : null,
    problem.field ? `field “${problem.field}”` : null,
  ].filter(Boolean);
  const [first = "", ...rest] = problem.detail.split("\n");
  return (
    <div className="box bad" role="alert" data-testid="error-box">
      <div className="row between">
        <strong className="break">{first}</strong>
        {onClose && (
          <button type="button" className="quiet" onClick={onClose}>
            Dismiss
          </button>
        )}
      </div>
      {rest.length > 0 && <pre>{rest.join("\n")}</pre>}
      {place.length > 0 && !first.includes(place.join(", ")) && <p className="small">At {place.join(", ")}.</p>}
      {problem.hint && <p className="small">{problem.hint}</p>}
      <p className="small muted">
        {problem.code}
        {problem.status > 0 && ` · HTTP ${problem.status}`}
      </p>
      {children}
    </div>
  );
}

const STATE_WORDS: Record<string, string> = {
  scheduling: "scheduling…",
  ready: "ready",
  queued: "queued",
  running: "running",
  stopping: "stopping…",
  stopped: "stopped",
  finished: "finished",
  failed: "failed",
};

export function StateChip({ state, position, testid }: { state: string; position?: number | null; testid?: string }) {
  return (
    <span className={`chip ${state}`} data-testid={testid} data-state={state}>
      {STATE_WORDS[state] ?? state}
      {state === "queued" && position ? ` · place ${position}` : ""}
    </span>
  );
}

export function Notes({ notes, open = false }: { notes: string[]; open?: boolean }) {
  if (notes.length === 0) return null;
  return (
    <details className="notes" data-testid="notes" open={open}>
      <summary>
        {notes.length === 1 ? "1 note" : `${notes.length} notes`}: what was assumed or changed to read this module
      </summary>
      <ul>
        {notes.map((note) => (
          <li key={note} className="break">
            {note}
          </li>
        ))}
      </ul>
    </details>
  );
}

export function Waiting({ children }: { children: ReactNode }) {
  return (
    <div className="centre muted" role="status">
      <p>{children}</p>
    </div>
  );
}
