// A machine on which a clone of anything runs something: a home, an environment and a PATH full of programs that git would start. What is started leaves its
// name behind. The environment of this process is so until it is removed.
import fs from "node:fs";
import os from "node:os";
import path from "node:path";

export interface CarelessMachine {
  /** Its home. */
  folder: string;
  /** A file that must not come to be, for traps of a repository's own. */
  canary(name: string): string;
  /** For a clone that goes wrong: without what would keep it from the server. */
  env: Record<string, string>;
  /** The names of what was started. */
  sprung(): string[];
  reset(): void;
  remove(): void;
}

export function carelessMachine(): CarelessMachine {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), "extraction-careless-"));
  const canaries = fs.mkdtempSync(path.join(os.tmpdir(), "extraction-canaries-"));
  const canary = (name: string) => path.join(canaries, name.replaceAll(" ", "-"));
  const script = (place: string, name: string, then = "") => {
    fs.mkdirSync(path.dirname(place), { recursive: true });
    fs.writeFileSync(place, `#!/bin/sh\necho "$0 $*" >> ${canary(name)}\n${then}\n`, { mode: 0o755 });
    return place;
  };
  const at = (...parts: string[]) => path.join(folder, ...parts);
  const hooks = ["post-checkout", "post-index-change", "reference-transaction", "post-merge"];
  for (const hook of hooks) {
    script(at("hooks", hook), "hook");
    script(at("template/hooks", hook), "hook");
  }
  const filter = script(at("filter"), "filter", "cat");
  const config = `
[core]
	hooksPath = ${at("hooks")}
	fsmonitor = ${script(at("fsmonitor"), "fsmonitor")}
	sshCommand = ${script(at("ssh-command"), "ssh")}
	symlinks = true
[init]
	templateDir = ${at("template")}
[filter "evil"]
	smudge = ${filter}
	required = true
[filter "lfs"]
	smudge = ${filter}
	process = ${script(at("process"), "filter")}
[credential]
	helper = ${script(at("credential"), "credential")}
[protocol]
	allow = always
[submodule]
	recurse = true
`;
  fs.writeFileSync(at(".gitconfig"), config);
  fs.writeFileSync(at(".netrc"), "default login somebody password of-the-machine\n");
  for (const name of ["git-lfs", "ssh", "git-remote-ext", "git-remote-ssh", "git-credential-evil", "touch"]) {
    script(at("bin", name), "program on the PATH");
  }
  const settings: Record<string, string> = {
    HOME: folder,
    XDG_CONFIG_HOME: folder,
    PATH: `${at("bin")}:${process.env.PATH}`,
    GIT_CONFIG_GLOBAL: at(".gitconfig"),
    GIT_CONFIG_SYSTEM: at(".gitconfig"),
    GIT_TEMPLATE_DIR: at("template"),
    GIT_SSH_COMMAND: at("ssh-command"),
    GIT_ALLOW_PROTOCOL: "file:ext:http:https:ssh",
  };
  const alsoSet: Record<string, string> = {
    GIT_ASKPASS: script(at("askpass"), "askpass"),
    SSH_ASKPASS: at("askpass"),
    GIT_PROXY_COMMAND: script(at("proxy"), "proxy"),
    GIT_TRACE: canary("trace"),
    GIT_TRACE_CURL: canary("trace"),
    http_proxy: "http://127.0.0.1:9",
    https_proxy: "http://127.0.0.1:9",
    ALL_PROXY: "http://127.0.0.1:9",
  };
  const before = { ...process.env };
  Object.assign(process.env, settings, alsoSet);
  return {
    folder,
    canary,
    env: settings,
    sprung: () => fs.readdirSync(canaries),
    reset() {
      for (const name of fs.readdirSync(canaries)) fs.rmSync(path.join(canaries, name));
    },
    remove() {
      for (const name of Object.keys({ ...settings, ...alsoSet })) {
        if (before[name] === undefined) delete process.env[name];
        else process.env[name] = before[name];
      }
      for (const made of [folder, canaries]) fs.rmSync(made, { recursive: true, force: true });
    },
  };
}
