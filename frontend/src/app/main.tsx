import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { ApiError } from "../api/problem";
import { App } from "./App";
import "@xyflow/react/dist/base.css";
import "uplot/dist/uPlot.min.css";
import "./styles.css";
import { startTheme } from "./theme";

startTheme();

const queries = new QueryClient({
  defaultOptions: {
    queries: {
      staleTime: 5_000,
      // What the server refuses stays refused; only silence is worth another try.
      retry: (failures, error) => failures < 3 && (!(error instanceof ApiError) || error.problem.status === 0 || error.problem.status >= 502),
    },
  },
});

createRoot(document.getElementById("root")!).render(
  <StrictMode>
    <QueryClientProvider client={queries}>
      <App />
    </QueryClientProvider>
  </StrictMode>,
);
