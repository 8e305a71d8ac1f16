// Two builds into the package: the dashboard with the page for those who wait, and, with `--mode embed`, the custom element as one file for pages
// of others. `npx vite web` beside a running `npm start` shows changes as they are made.
import { fileURLToPath } from "node:url";
import { defineConfig } from "vite";

const from = (place: string) => fileURLToPath(new URL(place, import.meta.url));

export default defineConfig(({ mode }) => ({
  // Addresses of assets are relative to the document's <base>, which says where the server is mounted.
  base: "./",
  // A library is built for other bundlers, which would say this themselves; behind this file comes none.
  ...(mode === "embed" && { define: { "process.env.NODE_ENV": '"production"' } }),
  resolve: {
    alias: {
      "stillwake/react": from("../dist/react/index.js"),
      "stillwake/element": from("../dist/element/index.js"),
    },
  },
  build: {
    outDir: from("../dist/web"),
    emptyOutDir: mode !== "embed",
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    ...(mode === "embed"
      ? {
          lib: { entry: from("embed.ts"), formats: ["iife"], name: "Stillwake", fileName: () => "embed.js" },
          copyPublicDir: false,
        }
      : { rollupOptions: { input: { index: from("index.html"), watch: from("watch.html") } } }),
  },
  // For `npx vite web`: the server that is asked, and addresses of pages that are no files.
  server: {
    proxy: {
      // The host stays that of the page: the server refuses writes from pages of other origins.
      "^/(v1|docs|openapi)": { target: process.env.STILLWAKE_SERVER ?? "http://127.0.0.1:4700", changeOrigin: false },
    },
  },
}));
