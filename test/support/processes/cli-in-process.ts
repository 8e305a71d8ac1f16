// The command line without a process: what it prints, says and answers. Many calls of it would otherwise be many starts of Node.
import { Writable } from "node:stream";
import { main } from "../../../src/cli/main.ts";

export interface Called {
  code: number;
  stdout: string;
  stderr: string;
}

interface Options {
  /** Somebody looks on, in a terminal of that width. */
  columns?: number;
}

export function command(args: readonly string[], env?: Record<string, string>, options?: Options): Promise<Called> {
  return startCommand(args, env, options).done;
}

/** One that goes on for a while: what it has printed so far, and what came of it. */
export function startCommand(
  args: readonly string[],
  env: Record<string, string> = {},
  { columns }: Options = {},
): { stdout(): string; done: Promise<Called> } {
  const [out, talk] = [sink(), sink()];
  const tty = columns === undefined ? {} : { isTTY: true, columns };
  const around = { env, out: Object.assign(out.stream, tty), talk: talk.stream };
  const done = main(args, around).then((code) => ({ code, stdout: out.text(), stderr: talk.text() }));
  return { stdout: out.text, done };
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
