#!/usr/bin/env node
// The program. Everything else is in main.ts, so that it can be called without a process.
import { main } from "./main.ts";
import { surviveLostOutputs } from "./output/screen.ts";

surviveLostOutputs();
process.exitCode = await main(process.argv.slice(2));
