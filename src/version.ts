// This package's version, from its package.json.
import fs from "node:fs";

export const version: string = JSON.parse(fs.readFileSync(new URL("../package.json", import.meta.url), "utf8")).version;
