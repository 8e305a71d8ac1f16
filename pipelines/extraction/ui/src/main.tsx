// The page of the application: what repositories there are, and for each what its extraction says and what it has found.
import "@stillwake/kit/ui/look/tokens.css";
import "@stillwake/kit/ui/look/base.css";
import "@stillwake/kit/ui/look/parts.css";
import "./look/extraction.css";
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { App } from "./app.tsx";

createRoot(document.getElementById("root")!).render(
  <StrictMode>
    <App />
  </StrictMode>,
);
