// All mutants: the engine with one deliberate fault each, and the test that must detect it. One file per SQL file (sql/) and per source
// folder (src/, pipelines/). `npm run mutants` applies them one by one: a test that passes with its mutant applied proves nothing.
//
// A mutant replaces `old` by `new` in `file` (by default the file its module names), or makes several `edits`, in `file`
// or in files of their own. `old` must occur exactly once: `npm run check` fails when a change to the engine breaks
// that. `killedBy` is the test file that must fail (by default the one its module names); `only` selects tests in it by
// title, where another test would fail first or the file is slow.
import fs from "node:fs";

const folder = new URL("./", import.meta.url);
const modules = fs
  .readdirSync(folder, { recursive: true, encoding: "utf8" })
  .filter((name) => name.endsWith(".mjs") && name !== "index.mjs")
  .sort();

export const mutants = [];
for (const name of modules) {
  const module = await import(new URL(name.replaceAll("\\", "/"), folder).href);
  for (const { name, killedBy = module.killedBy, only, edits, file, old, new: text } of module.mutants) {
    mutants.push({
      name,
      killedBy,
      only,
      edits: (edits ?? [{ old, new: text }]).map((edit) => ({ ...edit, file: edit.file ?? file ?? module.file })),
    });
  }
}
