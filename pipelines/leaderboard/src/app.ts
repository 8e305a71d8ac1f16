// The application as one origin, to be mounted anywhere: its API, the server that follows jobs, and the page.
import { fileURLToPath } from "node:url";
import { type App, type AppOptions as Mounted, mountApp } from "@stillwake/kit/web/app";
import { openPage } from "@stillwake/kit/web/assets";
import { type ApiOptions, createApi } from "./api.ts";

export interface AppOptions extends Omit<ApiOptions, "path">, Pick<Mounted, "live" | "base"> {}

const page = openPage({
  // From src/ and from dist/ alike.
  folder: fileURLToPath(new URL("../dist/ui/", import.meta.url)),
  places: /^(|boards\/[^/]+)$/,
});

export function createApp({ live, base, ...options }: AppOptions): App {
  return mountApp({ name: "leaderboard", api: (path) => createApi({ ...options, path }), live, page, base });
}
