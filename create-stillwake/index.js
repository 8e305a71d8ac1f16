#!/usr/bin/env node
// npm create stillwake [dir]: runs `stillwake init [dir]` of the same version.
import fs from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";
import { pathToFileURL } from "node:url";

const manifest = createRequire(import.meta.url).resolve("stillwake/package.json");
const { bin } = JSON.parse(fs.readFileSync(manifest, "utf8"));
const program = path.join(path.dirname(manifest), bin.stillwake);
process.argv.splice(1, 1, program, "init");
await import(pathToFileURL(program).href);
