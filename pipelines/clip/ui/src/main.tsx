// The page of the clip system.
import { IDENTITY_PATH } from "@stillwake/ui/frame.tsx";
import { mountApp } from "@stillwake/ui/mount.tsx";
import "./css/clip.css";
import { App } from "./app.tsx";

mountApp(<App />, IDENTITY_PATH);
