// Runs a deployment script with a restricted PATH: basic system programs, and fakes of the platform's programs. It
// cannot call other programs of this machine by mistake, and a missing program is really missing.
import { spawnSync } from "node:child_process";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";

const PLAIN =
  "bash basename base64 cat cp cut date dirname env grep head mkdir mktemp mv paste rm sed sleep sort tail touch tr".split(
    " ",
  );

interface Run {
  args?: readonly string[];
  env?: Readonly<Record<string, string>>;
  /** Scripts by program name. They share files of earlier runs in the folder $STATE. */
  programs: Readonly<Record<string, string>>;
  /** A folder that the caller removes. */
  state: string;
}

interface Ran {
  status: number | null;
  stdout: string;
  stderr: string;
  /** The lines of a file in $STATE. */
  lines(name: string): string[];
}

/** In a folder unrelated to the script, without a terminal. */
export function runSandboxed(script: string, { args = [], env = {}, programs, state }: Run): Ran {
  const bin = path.join(state, "bin");
  fs.rmSync(bin, { recursive: true, force: true });
  fs.mkdirSync(bin, { recursive: true });
  for (const name of PLAIN) {
    const found = ["/usr/bin", "/bin"].map((folder) => path.join(folder, name)).find((file) => fs.existsSync(file));
    if (found) fs.symlinkSync(found, path.join(bin, name));
  }
  for (const [name, text] of Object.entries(programs)) fs.writeFileSync(path.join(bin, name), text, { mode: 0o755 });
  const { status, stdout, stderr } = spawnSync(path.join(bin, "bash"), [script, ...args], {
    cwd: os.tmpdir(),
    encoding: "utf8",
    stdio: ["ignore", "pipe", "pipe"],
    env: { PATH: bin, STATE: state, ...env },
  });
  return {
    status,
    stdout,
    stderr,
    lines(name) {
      const file = path.join(state, name);
      return fs.existsSync(file) ? fs.readFileSync(file, "utf8").trimEnd().split("\n") : [];
    },
  };
}
