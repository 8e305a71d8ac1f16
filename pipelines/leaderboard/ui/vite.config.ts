// The page, built to where the server looks for it. `npx vite pipelines/leaderboard/ui` beside a running server shows changes as they are made.
import { fileURLToPath } from "node:url";
import { defineConfig } from "vite";

export default defineConfig({
  // Addresses of assets are relative to the document's <base>, which says where the application is mounted.
  base: "./",
  build: {
    outDir: fileURLToPath(new URL("../dist/ui", import.meta.url)),
    emptyOutDir: true,
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
  },
  server: {
    // The host stays that of the page: the server refuses writes from pages of other origins.
    proxy: { "^/(api|stillwake)/": { target: "http://127.0.0.1:4801", changeOrigin: false } },
  },
});
