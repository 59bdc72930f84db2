import { useState } from "react";
import { login, loginLocal, type Session } from "../api/client";
import icon from "./icon.svg";
import { ErrorBox } from "./messages";
import { ThemeButton } from "./Shell";

export function LoginPage({ session, onSession }: { session: Session; onSession: (session: Session) => void }) {
  const [username, setUsername] = useState("");
  const [password, setPassword] = useState("");
  const [error, setError] = useState<unknown>(null);
  const [busy, setBusy] = useState(false);
  const attempt = (entering: Promise<Session>) => {
    setBusy(true);
    setError(null);
    entering.then(onSession, setError).finally(() => setBusy(false));
  };
  return (
    <main className="page">
      <div className="narrow stack">
        <div className="row between">
          <span className="brand">
            <img src={icon} alt="" />
            Graphsmith
          </span>
          <ThemeButton />
        </div>
        <form
          className="card pad stack"
          onSubmit={(event) => {
            event.preventDefault();
            attempt(login(username, password));
          }}
        >
          <h1>Sign in</h1>
          {error !== null && <ErrorBox error={error} />}
          <div className="field">
            <label htmlFor="username">User name</label>
            <input id="username" type="text" autoComplete="username" required value={username} onChange={(event) => setUsername(event.target.value)} />
          </div>
          <div className="field">
            <label htmlFor="password">Password</label>
            <input id="password" type="password" autoComplete="current-password" required value={password} onChange={(event) => setPassword(event.target.value)} />
          </div>
          <button type="submit" className="primary" disabled={busy}>
            Sign in
          </button>
          {session.local && (
            <button type="button" disabled={busy} onClick={() => attempt(loginLocal())}>
              Continue as this machine’s user
            </button>
          )}
          <p className="small muted">An administrator of this server makes the accounts.</p>
        </form>
      </div>
    </main>
  );
}
