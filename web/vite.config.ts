// Two builds: the dashboard with the watch page, and with `--mode embed` the custom element as one file for other
// pages. `npx vite web` beside a running `npm start` reloads on changes.
import { fileURLToPath } from "node:url";
import { defineConfig } from "vite";
import { pageConfig } from "../ui/vite-config.ts";

const from = (path: string) => fileURLToPath(new URL(path, import.meta.url));

const page = pageConfig(from("../dist/web"), {
  paths: "^/(v1|docs|openapi)",
  server: process.env.STILLWAKE_SERVER ?? "http://127.0.0.1:4700",
});

export default defineConfig(({ mode }) => ({
  ...page,
  // Vite leaves this to the bundler that uses a library. The embed file is used without one.
  ...(mode === "embed" && { define: { "process.env.NODE_ENV": '"production"' } }),
  resolve: {
    alias: {
      "stillwake/react": from("../dist/react/index.js"),
      "stillwake/element": from("../dist/element/index.js"),
    },
  },
  build: {
    ...page.build,
    emptyOutDir: mode !== "embed",
    ...(mode === "embed"
      ? {
          lib: { entry: from("embed.ts"), formats: ["iife"], name: "Stillwake", fileName: () => "embed.js" },
          copyPublicDir: false,
        }
      : { rollupOptions: { input: { index: from("index.html"), watch: from("watch.html") } } }),
  },
}));
