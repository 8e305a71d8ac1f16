// The language of the whole comes before what pages say of their own.
import "./look/tokens.css";
import "./look/base.css";
import "./look/parts.css";
import "./look/shell.css";
import { QueryClientProvider } from "@tanstack/react-query";
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { Router } from "wouter";
import { questions } from "./api/ask.ts";
import { App } from "./app.tsx";
import { reloadOnUpgrade } from "./boundary.tsx";
import { NoticeBoard } from "./parts/notices.tsx";
import { applyTheme } from "./theme.ts";

applyTheme();
reloadOnUpgrade();

createRoot(document.getElementById("root")!).render(
  <StrictMode>
    <QueryClientProvider client={questions}>
      <NoticeBoard>
        <Router base={new URL(document.baseURI).pathname.replace(/\/$/, "")}>
          <App />
        </Router>
      </NoticeBoard>
    </QueryClientProvider>
  </StrictMode>,
);
