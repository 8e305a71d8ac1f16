#!/usr/bin/env node
// The program. Everything else is in main.ts, so that it can be called without a process.
import { main } from "./main.ts";

// Whoever read our output, such as head, has seen enough.
for (const stream of [process.stdout, process.stderr]) {
  stream.on("error", (error: { code?: string }) => {
    if (error.code === "EPIPE") process.exit(process.exitCode ?? 0);
    throw error;
  });
}

process.exitCode = await main(process.argv.slice(2));
