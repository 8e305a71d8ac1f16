// The page of the application: what repositories there are, and for each what its extraction says and what it has found.
import "./look/tokens.css";
import "./look/base.css";
import "./look/parts.css";
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { App } from "./app.tsx";

createRoot(document.getElementById("root")!).render(
  <StrictMode>
    <App />
  </StrictMode>,
);
