#!/usr/bin/env node
// Entry point of the `stillwake` program. main.ts does the work, so that tests can call it without a process.
import { main } from "./main.ts";
import { handleOutputErrors } from "./output/screen.ts";

handleOutputErrors();
process.exitCode = await main(process.argv.slice(2));
