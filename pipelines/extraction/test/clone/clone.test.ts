// The clone step: the files of one commit, fetched again on another machine, within the limits.
import { execFileSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import fs from "node:fs";
import path from "node:path";
import { commitFolder } from "@stillwake/kit/demo/git-server";
import { resolveRemote } from "@stillwake/kit/git/address";
import { describe, expect, it } from "vitest";
import { recordFigure } from "../../../../test/support/figures.ts";
import { Repository } from "../../../kit/test/support/git-server.ts";
import { remoteOptionsOf } from "../../src/clone/clone.ts";
import { readSettings } from "../../src/settings.ts";
import { filesIn, setUpClones, warningsAndErrors } from "../support/clone-job.ts";

const { server, clone, cloneOnOwnWorker: cloneAlone, folder } = await setUpClones();
const site = new Repository(server.root, "acme/site");
const files = { "package.json": '{ "name": "site" }', "src/index.js": "export {};\n", "docs/a b.md": "# A\r\n" };
const commit = site.commitFiles(files);
site.commitFiles({ "old.txt": "old" }, "release/1.x");
const MB = 2 ** 20;

describe("a clone", () => {
  it("has the files of the newest commit of the default branch, and leaves nothing else in the scratch directory", async () => {
    let seen = {};
    let left: string[] = [];
    const { job, logs } = await clone({
      inspect: (directory) => {
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

  it("has the files of the given branch", async () => {
    let seen = {};
    const { job } = await clone({
      input: { branch: "release/1.x" },
      inspect: (directory) => {
        seen = filesIn(directory);
      },
    });
    expect(job).toMatchObject({ state: "completed", output: { branch: "release/1.x" } });
    expect(seen).toEqual({ "old.txt": "old" });
  });

  it("logs that it uses a mirror", async () => {
    const { logs } = await clone({
      env: { EXTRACTION_GITHUB_URL: "https://github.example.com", EXTRACTION_MIRRORS: `github:acme=${server.url}` },
    });
    expect(logs.map(({ message }) => message)).toEqual([
      "Cloning repository...",
      "Using the mirror at 127.0.0.1",
      "Repository cloned successfully",
    ]);
  });

  it("works for a repository created by commitFolder, which gives the same commit for the same folder", async () => {
    const from = path.join(folder, "sample");
    fs.mkdirSync(path.join(from, "lib"), { recursive: true });
    fs.writeFileSync(path.join(from, "lib/a.js"), "1;\n");
    const { toolPath } = readSettings();
    const created = await commitFolder(from, path.join(server.root, "stillwake/sample.git"), toolPath);
    expect(await commitFolder(from, path.join(folder, "again.git"), toolPath)).toBe(created);
    const { job } = await clone({ input: { repository: "stillwake/sample" } });
    expect(job).toMatchObject({ state: "completed", output: { commit: created, files: 1 } });
  });
});

describe("files that are needed on another machine", () => {
  it("are fetched again from the same commit even if the branch has moved, without repeating the step", async () => {
    const moving = new Repository(server.root, "acme/moving");
    const first = moving.commitFiles({ "a.txt": "first" });
    let seen = {};
    const { job, logs, runs } = await cloneAlone(
      {
        input: { repository: "acme/moving" },
        between: () => moving.commitFiles({ "a.txt": "second" }),
        inspect: (directory) => {
          seen = filesIn(directory);
        },
      },
      { crashAfter: "cloning" },
    );
    expect(job).toMatchObject({ state: "completed", output: { commit: first } });
    expect(seen).toEqual({ "a.txt": "first" });
    expect(runs).toEqual({ cloning: 1, looking: 1 });
    expect(logs.map(({ message }) => message)).toContain(
      "Fetching the files again - this machine does not have those of the previous attempt",
    );
  });

  it("may no longer exist, and the message has a remedy", async () => {
    const gone = new Repository(server.root, "acme/gone");
    const first = gone.commitFiles({ "a.txt": "first" });
    const ran = await clone({
      input: { repository: "acme/gone" },
      loseFiles: true,
      between: () => {
        fs.rmSync(path.join(gone.directory, "objects"), { recursive: true });
        fs.mkdirSync(path.join(gone.directory, "objects"));
        gone.commitFiles({ "a.txt": "second" });
      },
      inspect: () => expect.unreachable(),
    });
    const message = `Commit ${first.slice(0, 12)} is no longer in the repository - start a new extraction`;
    expect(warningsAndErrors(ran)).toEqual([`error: ${message}`, `error: Extraction failed: ${message}`]);
    expect(ran.job).toMatchObject({ state: "failed", failure: { code: "CLONE_COMMIT", name: "Fatal" } });
  });
});

describe("the limit of a clone", () => {
  it("stops a transfer that exceeds it, long before it is complete", async () => {
    const large = new Repository(server.root, "acme/large");
    // Random, so not compressible: 12 MB at 2 MB per second.
    large.commitFiles({ "a.bin": randomBytes(12 * MB) });
    server.faults["acme/large"] = "slow";
    server.sent = 0;
    const ran = await clone({ input: { repository: "acme/large" }, env: { EXTRACTION_CLONE_GB: String(1 / 1024) } });
    expect(warningsAndErrors(ran)[0]).toBe("error: Repository is too large to scan (>0.000977GB)");
    expect(server.sent).toBeLessThan(10 * MB);
    recordFigure("extraction: sent of 12 MB until a clone with a limit of 1 MB was stopped", server.sent / MB, "MB");
  });

  it("applies before files are written if a small pack contains a huge file, or endless files or folders", async () => {
    const huge = new Repository(server.root, "acme/huge");
    huge.commitFiles({ "a.bin": Buffer.alloc(16 * MB) });
    const bomb = new Repository(server.root, "acme/bomb");
    const blob = bomb.blob("x");
    let tree = bomb.tree(Array.from("0123456789", (name) => ["100644", name, blob] as const));
    // 10^11 files in twelve objects.
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
    expect(warningsAndErrors(tooBig)[0]).toBe("error: Repository is too large to scan (>0.01GB)");
    expect(warningsAndErrors(tooMany)[0]).toBe("error: Repository has too many files to scan (>5,000)");
    expect(warningsAndErrors(tooHollow)[0]).toBe("error: Repository has too many folders to scan (>5,000)");
    for (const { job } of [tooBig, tooMany, tooHollow]) expect(job.failure).toMatchObject({ name: "Fatal" });
  });

  it("includes the free disk space", async (context) => {
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
      expect(warningsAndErrors(ran)[0]).toBe("error: Repository is too large to scan (>5GB)");
      expect(ran.job).toMatchObject({ state: "failed", failure: { code: "CLONE_TOO_LARGE", name: "Fatal" } });
    } finally {
      execFileSync("umount", ["-l", disk]);
    }
  });
});

it.each([
  ["github", "github.com"],
  ["gitlab", "gitlab.com"],
  ["bitbucket", "bitbucket.org"],
] as const)(
  "a host of %s with a private address is refused, and the message names the variable that allows it",
  async (provider, host) => {
    const options = remoteOptionsOf({ provider, repository: "acme/site" }, readSettings({}));
    await expect(resolveRemote(options, async () => [{ address: "10.0.0.7", family: 4 }])).rejects.toThrow(
      `Connecting to ${host} is not allowed - the operator can allow its network with EXTRACTION_ALLOW_ADDRESSES`,
    );
  },
);

it.each(["github", "gitlab", "bitbucket"] as const)(
  "an invalid URL of %s is refused, and the message names its variable",
  async (provider) => {
    const setting = `EXTRACTION_${provider.toUpperCase()}_URL`;
    const options = remoteOptionsOf(
      { provider, repository: "acme/site" },
      readSettings({ [setting]: "ssh://git@example.com" }),
    );
    await expect(resolveRemote(options)).rejects.toThrow(
      ` is not valid - set ${setting} to its https URL, without a user`,
    );
  },
);
