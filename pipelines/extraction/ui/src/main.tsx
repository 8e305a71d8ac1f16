// The page of the extraction system.
import { IDENTITY_PATH } from "@stillwake/ui/frame.tsx";
import { mountApp } from "@stillwake/ui/mount.tsx";
import "./css/extraction.css";
import { App } from "./app.tsx";

mountApp(<App />, IDENTITY_PATH);
