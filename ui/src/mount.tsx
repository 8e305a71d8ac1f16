// Renders an application into the page, with its queries, its notices and its router. The CSS is imported here, so that
// it precedes the CSS of the application.
import "./css/tokens.css";
import "./css/base.css";
import "./css/parts.css";
import "./css/table.css";
import "./css/form.css";
import "./css/page.css";
import { QueryClientProvider } from "@tanstack/react-query";
import { type ReactNode, StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { Router } from "wouter";
import { createQueryClient } from "./api/query.ts";
import { Notices } from "./parts/notices.tsx";

/** `identityPath`: the API path that returns who is signed in. */
export function mountApp(app: ReactNode, identityPath: string): void {
  createRoot(document.getElementById("root")!).render(
    <StrictMode>
      <QueryClientProvider client={createQueryClient(identityPath)}>
        <Notices>
          <Router base={new URL(document.baseURI).pathname.replace(/\/$/, "")}>{app}</Router>
        </Notices>
      </QueryClientProvider>
    </StrictMode>,
  );
}
