// What a clone brings: the files of one commit, on whatever machine they are needed, and never more than the limits allow.
import { execFile, execFileSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import fs from "node:fs";
import http from "node:http";
import path from "node:path";
import { promisify } from "node:util";
import { describe, expect, it } from "vitest";
import { recordFigure } from "../../../test/setup/figures.ts";
import { locate } from "../src/clone/address.ts";
import { checkVersion } from "../src/clone/git.ts";
import { tooLarge } from "../src/clone/limits.ts";
import { commitFolder, serveRepositories } from "../src/demo/git-server.ts";
import { readSettings } from "../src/settings.ts";
import { cloning, filesIn, troubles } from "./setup/cloning.ts";
import { Repository } from "./setup/git-server.ts";

const { server, clone, cloneAlone, folder } = await cloning();
const site = new Repository(server.root, "acme/site");
const files = { "package.json": '{ "name": "site" }', "src/index.js": "export {};\n", "docs/a b.md": "# A\r\n" };
const commit = site.commitFiles(files);
site.commitFiles({ "old.txt": "old" }, "release/1.x");
const MB = 2 ** 20;

describe("a clone", () => {
  it("is the files of the newest commit of the default branch, and leaves nothing else in the scratch directory", async () => {
    let seen = {};
    let left: string[] = [];
    const { job, logs } = await clone({
      look: (directory) => {
        seen = filesIn(directory);
        left = fs.readdirSync(path.dirname(directory));
      },
    });
    const bytes = Object.values(files).join("").length;
    expect(job).toMatchObject({ state: "completed", output: { commit, branch: "main", files: 3, bytes } });
    expect(logs.map(({ level, message }) => `${level}: ${message}`)).toEqual([
      "info: Cloning repository...",
      "success: Repository cloned successfully",
    ]);
    expect(seen).toEqual(files);
    expect(left).toEqual(["source"]);
  });

  it("is of the branch that is asked for", async () => {
    let seen = {};
    const { job } = await clone({
      input: { branch: "release/1.x" },
      look: (directory) => {
        seen = filesIn(directory);
      },
    });
    expect(job).toMatchObject({ state: "completed", output: { branch: "release/1.x" } });
    expect(seen).toEqual({ "old.txt": "old" });
  });

  it("says so when it comes from a mirror", async () => {
    const { logs } = await clone({
      env: { EXTRACTION_GITHUB_URL: "https://github.example.com", EXTRACTION_MIRRORS: `github:acme=${server.url}` },
    });
    expect(logs.map(({ message }) => message)).toEqual([
      "Cloning repository...",
      "From the mirror at 127.0.0.1",
      "Repository cloned successfully",
    ]);
  });

  it("brings a folder that was made a repository of, and the same folder makes the same commit", async () => {
    const from = path.join(folder, "sample");
    fs.mkdirSync(path.join(from, "lib"), { recursive: true });
    fs.writeFileSync(path.join(from, "lib/a.js"), "1;\n");
    const made = await commitFolder(from, path.join(server.root, "stillwake/sample.git"));
    expect(await commitFolder(from, path.join(folder, "again.git"))).toBe(made);
    const { job } = await clone({ input: { repository: "stillwake/sample" } });
    expect(job).toMatchObject({ state: "completed", output: { commit: made, files: 1 } });
  });
});

describe("the files of a clone that are needed on another machine", () => {
  it("are fetched again, of that very commit, though the branch has moved on; the clone is not repeated", async () => {
    const moving = new Repository(server.root, "acme/moving");
    const first = moving.commitFiles({ "a.txt": "first" });
    let seen = {};
    const { job, logs, runs } = await cloneAlone(
      {
        input: { repository: "acme/moving" },
        between: () => moving.commitFiles({ "a.txt": "second" }),
        look: (directory) => {
          seen = filesIn(directory);
        },
      },
      { crashAfter: "cloning" },
    );
    expect(job).toMatchObject({ state: "completed", output: { commit: first } });
    expect(seen).toEqual({ "a.txt": "first" });
    expect(runs).toEqual({ cloning: 1, looking: 1 });
    expect(logs.map(({ message }) => message)).toContain(
      "Fetching the files again: those of the attempt before are gone",
    );
  });

  it("may be gone by then, and the person is told how to go on", async () => {
    const gone = new Repository(server.root, "acme/gone");
    const first = gone.commitFiles({ "a.txt": "first" });
    const ran = await clone({
      input: { repository: "acme/gone" },
      lose: true,
      between: () => {
        fs.rmSync(path.join(gone.directory, "objects"), { recursive: true });
        fs.mkdirSync(path.join(gone.directory, "objects"));
        gone.commitFiles({ "a.txt": "second" });
      },
      look: () => expect.unreachable(),
    });
    const sentence = `Commit ${first.slice(0, 12)} is no longer in the repository - start a new extraction`;
    expect(troubles(ran)).toEqual([`error: ${sentence}`, `error: Extraction failed: ${sentence}`]);
    expect(ran.job).toMatchObject({ state: "failed", failure: { code: "CLONE_COMMIT", name: "Fatal" } });
  });
});

describe("the limit of a clone", () => {
  it("ends a transfer that has passed it, long before its end", async () => {
    const large = new Repository(server.root, "acme/large");
    // Not to be compressed: 12 MB on the way, at 2 MB a second.
    large.commitFiles({ "a.bin": randomBytes(12 * MB) });
    server.faults["acme/large"] = "slow";
    server.sent = 0;
    const ran = await clone({ input: { repository: "acme/large" }, env: { EXTRACTION_CLONE_GB: String(1 / 1024) } });
    expect(troubles(ran)[0]).toBe("error: Repository is too large to scan (>0.000977GB)");
    expect(server.sent).toBeLessThan(10 * MB);
    recordFigure("extraction: sent of 12 MB until a clone with a limit of 1 MB was ended", server.sent / MB, "MB");
  });

  it("is met before anything is written when a small pack holds a huge file, and when it holds endless names of files or of folders", async () => {
    const huge = new Repository(server.root, "acme/huge");
    huge.commitFiles({ "a.bin": Buffer.alloc(16 * MB) });
    const bomb = new Repository(server.root, "acme/bomb");
    const blob = bomb.blob("x");
    let tree = bomb.tree(Array.from("0123456789", (name) => ["100644", name, blob] as const));
    // Ten to the power of eleven files in twelve objects.
    for (let level = 0; level < 10; level += 1) {
      tree = bomb.tree(Array.from("0123456789", (name) => ["40000", name, tree] as const));
    }
    bomb.commit(tree);
    const hollow = new Repository(server.root, "acme/hollow");
    let empty = hollow.tree([]);
    for (let level = 0; level < 10; level += 1) {
      empty = hollow.tree(Array.from("0123456789", (name) => ["40000", name, empty] as const));
    }
    hollow.commit(empty);
    const [tooBig, tooMany, tooHollow] = await Promise.all([
      clone({ input: { repository: "acme/huge" }, env: { EXTRACTION_CLONE_GB: "0.01" } }),
      clone({ input: { repository: "acme/bomb" }, env: { EXTRACTION_CLONE_FILES: "5000" } }),
      clone({ input: { repository: "acme/hollow" }, env: { EXTRACTION_CLONE_FILES: "5000" } }),
    ]);
    expect(troubles(tooBig)[0]).toBe("error: Repository is too large to scan (>0.01GB)");
    expect(troubles(tooMany)[0]).toBe("error: Repository has too many files to scan (>5,000)");
    expect(troubles(tooHollow)[0]).toBe("error: Repository has too many folders to scan (>5,000)");
    for (const { job } of [tooBig, tooMany, tooHollow]) expect(job.failure).toMatchObject({ name: "Fatal" });
  });

  it("is the room on the disk too", async (context) => {
    const disk = path.join(folder, "disk");
    fs.mkdirSync(disk);
    try {
      execFileSync("mount", ["-t", "tmpfs", "-o", "size=20m", "tmpfs", disk], { stdio: "pipe" });
    } catch {
      return context.skip("mount is not permitted here");
    }
    try {
      new Repository(server.root, "acme/roomy").commitFiles({ "a.bin": randomBytes(6 * MB) });
      const input = { repository: "acme/roomy" };
      const ran = await cloneAlone({ input }, { worker: { scratch: disk } });
      expect(troubles(ran)[0]).toBe("error: Repository is too large to scan (>5GB)");
      expect(ran.job).toMatchObject({ state: "failed", failure: { code: "CLONE_TOO_LARGE", name: "Fatal" } });
    } finally {
      execFileSync("umount", ["-l", disk]);
    }
  });

  it.each([
    [5, ">5GB"],
    [0.5, ">0.5GB"],
    [1.25, ">1.25GB"],
  ])("of %d GB is said as %s", (limit, said) => {
    const { limits } = readSettings({ EXTRACTION_CLONE_GB: String(limit) });
    expect(tooLarge(limits).message).toBe(`Repository is too large to scan (${said})`);
  });
});

describe("the git of the worker", () => {
  it.each([
    "2.39.5",
    "2.39.5 (Apple Git-154)",
    "2.43.7",
    "2.45.4.windows.1",
    "2.50.1",
    "2.51.0",
    "2.60.0.rc1",
    "3.0.0",
  ])("%s is used", (version) => {
    expect(() => checkVersion(`git version ${version}\n`)).not.toThrow();
  });

  it.each([
    ["2.30.2", "Git 2.30.2 on the worker is not safe to clone with - install git 2.39.4 or later"],
    ["2.39.3", "Git 2.39.3 on the worker is not safe to clone with - install git 2.39.4 or later"],
    ["2.45.1", "Git 2.45.1 on the worker is not safe to clone with - install git 2.45.4 or later"],
    ["1.9.1", "Git 1.9.1 on the worker is not safe to clone with - install git 2.39.4 or later"],
    ["of nobody", "The version of git on the worker cannot be told - install git 2.39.4 or later"],
  ])("%s is refused", (version, sentence) => {
    expect(() => checkVersion(`git version ${version}`)).toThrow(sentence);
  });

  it("connects to the address that was judged, whatever its own resolver would say", async () => {
    const port = new URL(server.url).port;
    const settings = readSettings({
      EXTRACTION_GITHUB_URL: `http://git.example.invalid:${port}`,
      EXTRACTION_ALLOW_ADDRESSES: "127.0.0.0/8",
    });
    const asked = { provider: "github", repository: "acme/site" } as const;
    const { url, pin } = await locate(asked, settings, async () => [{ address: "127.0.0.1", family: 4 }]);
    expect(pin).toBe(`git.example.invalid:${port}:127.0.0.1`);
    const asking = promisify(execFile)("git", [
      "-c",
      `http.curloptResolve=${pin}`,
      "ls-remote",
      url,
      "refs/heads/main",
    ]);
    const { stdout: heads } = await asking;
    expect(heads).toBe(`${commit}\trefs/heads/main\n`);
  });

  it.each([
    ["one inner answer among outer ones", ["140.82.121.4", "10.0.0.7"]],
    ["the machine itself", ["::1"]],
    ["the cloud's metadata", ["169.254.169.254"]],
    ["an inner address in IPv6 clothes", ["::ffff:192.168.1.1"]],
  ])("is not started for a host that resolves to %s", async (_what, addresses) => {
    const resolve = async () => addresses.map((address) => ({ address, family: address.includes(":") ? 6 : 4 }));
    await expect(
      locate({ provider: "gitlab", repository: "acme/site" }, readSettings({}), resolve),
    ).rejects.toMatchObject({
      code: "CLONE_ADDRESS",
      message:
        "gitlab.com may not be connected to from here - the operator can allow its range by EXTRACTION_ALLOW_ADDRESSES",
    });
  });

  it.each([
    "https://user:secret@gitlab.com",
    "ssh://git@gitlab.com",
    "gitlab.com",
    "https://gitlab.com/?a=1",
    "ext::sh -c id",
  ])("is not started for a provider at %s", async (url) => {
    const settings = readSettings({ EXTRACTION_GITLAB_URL: url });
    await expect(locate({ provider: "gitlab", repository: "acme/site" }, settings)).rejects.toMatchObject({
      code: "CLONE_HOST",
    });
  });

  it("is given an address below the operator's path", async () => {
    const settings = readSettings({ EXTRACTION_GITLAB_URL: "https://git.example.com/gitlab/" });
    const resolve = async () => [{ address: "2606:50c0:8000::64", family: 6 }];
    expect(await locate({ provider: "gitlab", repository: "a/b/c.git" }, settings, resolve)).toEqual({
      url: "https://git.example.com/gitlab/a/b/c.git",
      origin: "https://git.example.com",
      host: "git.example.com",
      protocol: "https",
      pin: "git.example.com:443:[2606:50c0:8000::64]",
    });
  });
});

it("a git server of ours outlives an address that is none", async () => {
  const { url, close } = await serveRepositories({ root: server.root });
  const ask = (asked: string) =>
    new Promise<number | undefined>((resolve, reject) => {
      http.get(url, { path: asked }, (answer) => resolve(answer.resume().statusCode)).on("error", reject);
    });
  try {
    for (const none of ["//", "http://[", "//:x/"]) expect(await ask(none)).toBe(400);
    expect(await ask("/acme/nothing.git/info/refs?service=git-upload-pack")).toBe(404);
    expect(await ask("/acme/site.git/info/refs?service=git-upload-pack")).toBe(200);
  } finally {
    await close();
  }
});
