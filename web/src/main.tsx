import { mountApp } from "@stillwake/ui/mount.tsx";
import "./css/shell.css";
import { IDENTITY_PATH } from "./api/resources.ts";
import { App } from "./app.tsx";
import { reloadOnUpgrade } from "./boundary.tsx";
import { applyTheme } from "./theme.ts";

applyTheme();
reloadOnUpgrade();
mountApp(<App />, IDENTITY_PATH);
