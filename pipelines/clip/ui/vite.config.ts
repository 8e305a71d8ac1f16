// Builds the page to where the server looks for it. `npx vite pipelines/clip/ui` beside a running server reloads on changes.
import { fileURLToPath } from "node:url";
import { defineConfig } from "vite";
import { pageConfig } from "../../../ui/vite-config.ts";

export default defineConfig(
  pageConfig(fileURLToPath(new URL("../dist/ui", import.meta.url)), {
    paths: "^/(api|stillwake)/",
    server: "http://127.0.0.1:4802",
  }),
);
