// The page of the application: whose commits a repository is made of, and how far the counting and the looking up are.
import "@stillwake/kit/ui/look/tokens.css";
import "@stillwake/kit/ui/look/base.css";
import "@stillwake/kit/ui/look/parts.css";
import "./look/leaderboard.css";
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { App } from "./app.tsx";

createRoot(document.getElementById("root")!).render(
  <StrictMode>
    <App />
  </StrictMode>,
);
