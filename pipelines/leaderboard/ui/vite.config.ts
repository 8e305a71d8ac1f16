// Builds the page to where the server looks for it. `npx vite pipelines/leaderboard/ui` beside a running server reloads on changes.
import { fileURLToPath } from "node:url";
import { defineConfig } from "vite";

export default defineConfig({
  // Asset URLs are relative to the document's <base>, which is the path under which the application is mounted.
  base: "./",
  build: {
    outDir: fileURLToPath(new URL("../dist/ui", import.meta.url)),
    emptyOutDir: true,
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
  },
  server: {
    // The host stays that of the page: the server rejects writes from other origins.
    proxy: { "^/(api|stillwake)/": { target: "http://127.0.0.1:4801", changeOrigin: false } },
  },
});
