import { useMutation, useQuery as useData, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { changePassword, createKey, deleteKey, getKeys, getSession } from "../api/client";
import { bytes, when } from "./format";
import { ErrorBox } from "./messages";

export function AccountPage() {
  const session = useData({ queryKey: ["session"], queryFn: getSession });
  const user = session.data?.user;
  if (!user) return null;
  return (
    <main className="page" id="main">
      <div className="content">
        <div>
          <h1>{user.username}</h1>
          <p className="muted">
            {bytes(user.storage_used_bytes)} of {bytes(user.storage_quota_bytes)} storage used
          </p>
        </div>
        <PasswordForm hasPassword={user.has_password} />
        <Keys />
      </div>
    </main>
  );
}

function PasswordForm({ hasPassword }: { hasPassword: boolean }) {
  const [current, setCurrent] = useState("");
  const [next, setNext] = useState("");
  const queries = useQueryClient();
  const change = useMutation({
    mutationFn: () => changePassword(current, next),
    onSuccess: () => {
      setCurrent("");
      setNext("");
      return queries.invalidateQueries({ queryKey: ["session"] });
    },
  });
  return (
    <form
      className="card pad stack"
      onSubmit={(event) => {
        event.preventDefault();
        change.mutate();
      }}
    >
      <h2>{hasPassword ? "Change the password" : "Set a password"}</h2>
      {change.isError && <ErrorBox error={change.error} />}
      {change.isSuccess && (
        <p className="box good" role="status">
          The password was changed; other sessions were ended.
        </p>
      )}
      <div className="two">
        {hasPassword && (
          <div className="field">
            <label htmlFor="current">Current password</label>
            <input id="current" type="password" autoComplete="current-password" required value={current} onChange={(event) => setCurrent(event.target.value)} />
          </div>
        )}
        <div className="field">
          <label htmlFor="next">New password</label>
          <input id="next" type="password" autoComplete="new-password" required value={next} onChange={(event) => setNext(event.target.value)} />
        </div>
      </div>
      <div>
        <button type="submit" disabled={change.isPending}>
          {hasPassword ? "Change" : "Set"} password
        </button>
      </div>
    </form>
  );
}

function Keys() {
  const queries = useQueryClient();
  const [name, setName] = useState("");
  const keys = useData({ queryKey: ["keys"], queryFn: getKeys });
  const refresh = () => queries.invalidateQueries({ queryKey: ["keys"] });
  const create = useMutation({
    mutationFn: () => createKey(name),
    onSuccess: () => {
      setName("");
      return refresh();
    },
  });
  const remove = useMutation({ mutationFn: deleteKey, onSuccess: refresh });
  return (
    <section className="card pad stack">
      <div>
        <h2>API keys</h2>
        <p className="muted small">
          For scripts: send <code>Authorization: Bearer gs_…</code>. A key can do what you can do; it is shown once.
        </p>
      </div>
      {create.isError && <ErrorBox error={create.error} />}
      {create.data && (
        <div className="box good" role="status">
          <p>Your new key. Copy it now, it is not shown again:</p>
          <pre>{create.data.key}</pre>
        </div>
      )}
      <form
        className="row"
        onSubmit={(event) => {
          event.preventDefault();
          create.mutate();
        }}
      >
        <div className="grow">
          <input type="text" aria-label="Name of the new key" placeholder="What the key is for" required maxLength={100} value={name} onChange={(event) => setName(event.target.value)} />
        </div>
        <button type="submit" disabled={create.isPending}>
          Make a key
        </button>
      </form>
      {keys.data && keys.data.length > 0 && (
        <div className="table-wrap">
          <table>
            <thead>
              <tr>
                <th>Name</th>
                <th>Starts with</th>
                <th>Made</th>
                <th>Last used</th>
                <th aria-label="Actions" />
              </tr>
            </thead>
            <tbody>
              {keys.data.map((key) => (
                <tr key={key.id}>
                  <td>{key.name}</td>
                  <td className="mono">{key.prefix}</td>
                  <td>{when(key.created)}</td>
                  <td>{key.last_used ? when(key.last_used) : "never"}</td>
                  <td className="right">
                    <button type="button" className="danger" onClick={() => remove.mutate(key.id)}>
                      Revoke
                    </button>
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </section>
  );
}
