// The part of the Vite configuration that the dashboard and the pages of the example systems share.
import type { UserConfig } from "vite";

/** `api`: the requests that `npx vite <folder>` forwards, and the running server that answers them. */
export function pageConfig(outDir: string, api: { paths: string; server: string }) {
  return {
    // Asset URLs are relative to the document's <base>, which is the path under which the page is mounted.
    base: "./",
    build: { outDir, emptyOutDir: true, assetsInlineLimit: 0, modulePreload: { polyfill: false } },
    // The host stays that of the page: the server rejects writes from other origins.
    server: { proxy: { [api.paths]: { target: api.server, changeOrigin: false } } },
  } satisfies UserConfig;
}
