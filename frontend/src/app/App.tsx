import { useQuery as useData, useQueryClient } from "@tanstack/react-query";
import { lazy, Suspense } from "react";
import { getSession } from "../api/client";
import { AccountPage } from "./AccountPage";
import { HomePage } from "./HomePage";
import { LoginPage } from "./LoginPage";
import { ErrorBox, Waiting } from "./messages";
import { Link, usePath } from "./router";
import { changeSession } from "./session";
import { Shell } from "./Shell";

const GraphPage = lazy(() => import("./GraphPage").then((module) => ({ default: module.GraphPage })));
const RunsPage = lazy(() => import("../runs/RunsPage").then((module) => ({ default: module.RunsPage })));
const RunPage = lazy(() => import("../runs/RunPage").then((module) => ({ default: module.RunPage })));

export function App() {
  const path = usePath();
  const queries = useQueryClient();
  const session = useData({ queryKey: ["session"], queryFn: getSession, staleTime: 60_000 });
  if (session.isPending) return <Waiting>Opening…</Waiting>;
  if (session.isError) {
    return (
      <main className="page">
        <div className="narrow stack">
          <ErrorBox error={session.error} />
          <button type="button" onClick={() => void session.refetch()}>
            Try again
          </button>
        </div>
      </main>
    );
  }
  if (session.data.user === null) {
    return (
      <LoginPage
        session={session.data}
        onSession={(next) => changeSession(queries, next)}
      />
    );
  }
  return (
    <Shell session={session.data} user={session.data.user}>
      <Suspense fallback={<Waiting>Loading…</Waiting>}>
        <Page path={path} />
      </Suspense>
    </Shell>
  );
}

function Page({ path }: { path: string }) {
  const [, first, id] = path.split("/");
  if (path === "/" || path === "/graphs") return <HomePage />;
  if (first === "graphs" && id) return <GraphPage key={id} id={id} />;
  if (path === "/runs") return <RunsPage />;
  if (first === "runs" && id) return <RunPage key={id} id={id} />;
  if (path === "/account") return <AccountPage />;
  return (
    <main className="page" id="main">
      <div className="narrow stack">
        <h1>There is no such page</h1>
        <p>
          <code>{path}</code> leads nowhere. <Link href="/">Go to your graphs.</Link>
        </p>
      </div>
    </main>
  );
}
