// Two builds: the dashboard with the watch page, and with `--mode embed` the custom element as one file for other
// pages. `npx vite web` beside a running `npm start` reloads on changes.
import { fileURLToPath } from "node:url";
import { defineConfig } from "vite";

const from = (path: string) => fileURLToPath(new URL(path, import.meta.url));

export default defineConfig(({ mode }) => ({
  // Asset URLs are relative to the document's <base>, which is the path under which the server is mounted.
  base: "./",
  // Vite leaves this to the bundler that uses a library. The embed file is used without one.
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
  // For `npx vite web`: requests to the API go to a running server.
  server: {
    proxy: {
      // The host stays that of the page: the server rejects writes from other origins.
      "^/(v1|docs|openapi)": { target: process.env.STILLWAKE_SERVER ?? "http://127.0.0.1:4700", changeOrigin: false },
    },
  },
}));
