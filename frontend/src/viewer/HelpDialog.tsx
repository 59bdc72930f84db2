import { useEffect, useRef } from "react";

const KEYS: [string[], string][] = [
  [["W", "A", "S", "D"], "or arrows: move the view"],
  [["+", "-"], "zoom; so does the wheel, around the cursor"],
  [["f"], "fit the whole graph"],
  [["/"], "search; Enter and Shift+Enter go from hit to hit"],
  [["n", "N"], "next, previous hit"],
  [["o"], "open or close the selected fusion, loop or call (or double-click it)"],
  [["Esc"], "clear the selection"],
  [["?"], "this help"],
];

export function HelpDialog({ onClose }: { onClose: () => void }) {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => dialog.current?.showModal(), []);
  return (
    <dialog ref={dialog} aria-labelledby="help-title" onClose={onClose}>
      <div className="stack">
        <h2 id="help-title">Keyboard</h2>
        <div className="keys">
          {KEYS.map(([keys, text]) => (
            <Row key={text} keys={keys} text={text} />
          ))}
        </div>
        <p className="small muted">
          In the memory map: the same keys while it has the focus. In the list beside it: ↑ ↓ choose, Enter shows the
          instruction.
        </p>
        <form method="dialog">
          <button type="submit" className="primary">
            Close
          </button>
        </form>
      </div>
    </dialog>
  );
}

function Row({ keys, text }: { keys: string[]; text: string }) {
  return (
    <>
      <span className="nowrap">
        {keys.map((key) => (
          <span key={key}>
            <kbd>{key}</kbd>{" "}
          </span>
        ))}
      </span>
      <span>{text}</span>
    </>
  );
}
