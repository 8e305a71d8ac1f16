// Runs the command line in this process, which is faster than starting Node for each call.
import { Writable } from "node:stream";
import { main } from "../../../src/cli/main.ts";

export interface CommandResult {
  code: number;
  stdout: string;
  stderr: string;
}

interface Options {
  /** stdout is a terminal of this width. */
  columns?: number;
}

export function runCommand(
  args: readonly string[],
  env?: Record<string, string>,
  options?: Options,
): Promise<CommandResult> {
  return startCommand(args, env, options).done;
}

/** For a command that keeps running: its output so far, and its result. */
export function startCommand(
  args: readonly string[],
  env: Record<string, string> = {},
  { columns }: Options = {},
): { stdout(): string; done: Promise<CommandResult> } {
  const [stdout, stderr] = [sink(), sink()];
  const tty = columns === undefined ? {} : { isTTY: true, columns };
  const options = { env, stdout: Object.assign(stdout.stream, tty), stderr: stderr.stream };
  const done = main(args, options).then((code) => ({ code, stdout: stdout.text(), stderr: stderr.text() }));
  return { stdout: stdout.text, done };
}

function sink(): { stream: Writable; text(): string } {
  const parts: Buffer[] = [];
  const stream = new Writable({
    write(chunk, _encoding, done) {
      parts.push(Buffer.from(chunk));
      done();
    },
  });
  return { stream, text: () => Buffer.concat(parts).toString() };
}
