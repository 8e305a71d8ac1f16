// The application: its page and API as one handler, and its tables. Used by server.ts, `npm start` and tests.
import { fileURLToPath } from "node:url";
import * as tables from "@stillwake/kit/tables";
import { type App, type AppOptions as MountOptions, mountApp } from "@stillwake/kit/web/app";
import { openPage } from "@stillwake/kit/web/assets";
import type pg from "pg";
import { type ApiOptions, createApi } from "./api.ts";

export interface AppOptions extends Omit<ApiOptions, "path">, Pick<MountOptions, "live" | "base"> {}

// Relative to the package, from src/ and from dist/.
const page = openPage({
  folder: fileURLToPath(new URL("../dist/ui/", import.meta.url)),
  routes: /^(|clips\/[^/]+)$/,
  // Clips and uploads of this server, a file before its upload, and the address that a user has entered.
  media: "'self' blob: https: http:",
});
const file = fileURLToPath(new URL("../tables.sql", import.meta.url));

export function createApp({ live, base, ...options }: AppOptions): App {
  return mountApp({ name: "clip", api: (path) => createApi({ ...options, path }), live, page, base });
}

export function migrate(pool: pg.Pool): Promise<void> {
  return tables.migrate(pool, { schema: "clip", file });
}

/** Creates a login for pipeline code and returns its URL. */
export function loginFor(pool: pg.Pool, name: string): Promise<string> {
  return tables.loginFor(pool, name, ["clip_pipeline"]);
}
