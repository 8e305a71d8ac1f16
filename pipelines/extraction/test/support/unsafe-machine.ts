// Changes the environment of this process so that a plain git clone runs programs: a home, git configuration and PATH with traps.
// Each started program writes a canary file.
import fs from "node:fs";
import os from "node:os";
import path from "node:path";

export interface UnsafeMachine {
  /** Home directory. */
  folder: string;
  /** Path of a canary file, for traps inside a repository. */
  canary(name: string): string;
  /** Environment for a plain clone that triggers the traps: without proxies. */
  env: Record<string, string>;
  /** Names of the started programs. */
  triggered(): string[];
  reset(): void;
  remove(): void;
}

export function unsafeMachine(): UnsafeMachine {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), "extraction-careless-"));
  const canaries = fs.mkdtempSync(path.join(os.tmpdir(), "extraction-canaries-"));
  const canary = (name: string) => path.join(canaries, name.replaceAll(" ", "-"));
  const script = (file: string, name: string, command = "") => {
    fs.mkdirSync(path.dirname(file), { recursive: true });
    fs.writeFileSync(file, `#!/bin/sh\necho "$0 $*" >> ${canary(name)}\n${command}\n`, { mode: 0o755 });
    return file;
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
  fs.writeFileSync(at(".netrc"), "default login user password of-the-machine\n");
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
    triggered: () => fs.readdirSync(canaries),
    reset() {
      for (const name of fs.readdirSync(canaries)) fs.rmSync(path.join(canaries, name));
    },
    remove() {
      for (const name of Object.keys({ ...settings, ...alsoSet })) {
        if (before[name] === undefined) delete process.env[name];
        else process.env[name] = before[name];
      }
      for (const directory of [folder, canaries]) fs.rmSync(directory, { recursive: true, force: true });
    },
  };
}
