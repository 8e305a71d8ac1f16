// npm run screenshots [-- --scene busy --only overview --theme dark --size phone]: a picture of every page in results/screenshots, and what axe and the browser's console have
// against it. Fails when they have something.
import { parseArgs } from "node:util";
import { startVitest } from "vitest/node";
import { ensure, root } from "./ensure.mjs";

await ensure();
const text = { type: "string" };
const { values } = parseArgs({ options: { scene: text, only: text, theme: text, size: text } });
const vitest = await startVitest("test", [], {
  root,
  watch: false,
  include: ["test/browser/screenshots.ts"],
  provide: { screenshots: { ...values } },
});
await vitest.close();
