// npm run screenshots [-- --scenario busy --only overview --theme dark --size phone]: saves screenshots of the dashboard's
// pages in results/screenshots. Fails if axe or the browser's console reports a problem.
import { parseArgs } from "node:util";
import { startVitest } from "vitest/node";
import { ensure, root } from "./ensure.mjs";

await ensure();
const text = { type: "string" };
const { values } = parseArgs({ options: { scenario: text, only: text, theme: text, size: text } });
const vitest = await startVitest("test", [], {
  root,
  watch: false,
  include: ["test/browser/screenshots.ts"],
  provide: { screenshots: { ...values } },
});
await vitest.close();
