// Repositories that try to run programs or write files outside. The machine's git is configured to run whatever a repository
// names: a plain clone triggers the traps, our clone starts no program and writes nothing outside the scratch directory.
import { execFile } from "node:child_process";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { promisify } from "node:util";
import { resolveRemote } from "@stillwake/kit/git/address";
import { afterAll, afterEach, describe, expect, it } from "vitest";
import { recordFigure } from "../../../../test/support/figures.ts";
import { type Entry, Repository } from "../../../kit/test/support/git-server.ts";
import { remoteOptionsOf } from "../../src/clone/clone.ts";
import { input as schema } from "../../src/contract.ts";
import { readSettings } from "../../src/settings.ts";
import { filesIn, setUpClones, warningsAndErrors } from "../support/clone-job.ts";
import { unsafeMachine } from "../support/unsafe-machine.ts";

const trap = unsafeMachine();
const { server, clone, scratch, folder } = await setUpClones();
let clones = 0;

afterEach(() => {
  expect(trap.triggered()).toEqual([]);
  expect(outside()).toEqual(untouched);
});
afterAll(() => {
  recordFigure("extraction: hostile clones", clones);
  recordFigure("extraction: programs run by hostile clones", trap.triggered().length);
  trap.remove();
});

/** All files except the scratch directory and the server's repositories. */
function outside(): Record<string, string> {
  const beside = fs.readdirSync(folder).filter((name) => name !== "scratch" && name !== "repositories");
  return {
    ...filesIn(trap.folder),
    ...Object.fromEntries(beside.map((name) => [name, "beside the scratch directory"])),
  };
}
const untouched = outside();

describe("a repository with traps", () => {
  const repository = new Repository(server.root, "evil/traps");
  const other = new Repository(server.root, "evil/other").commitFiles({ "pwned.txt": "of a submodule" });
  const text = (content: string) => repository.blob(content);
  const run = `#!/bin/sh\ntouch ${trap.canary("file of the repository")}\n`;
  const pointer = `version https://git-lfs.github.com/spec/v1\noid sha256:${"0".repeat(64)}\nsize 5\n`;
  const entries: Entry[] = [
    ["100644", "-rf", text("a name like an option")],
    [
      "100644",
      ".gitattributes",
      text("* filter=evil\n*.lfs filter=lfs\n*.txt text eol=crlf ident working-tree-encoding=UTF-16\n"),
    ],
    ["100644", ".gitconfig", text(`[core]\n\tfsmonitor = touch ${trap.canary("config of the repository")}\n`)],
    ["40000", ".githooks", repository.tree([["100755", "post-checkout", text(run)]])],
    [
      "100644",
      ".gitmodules",
      text(`[submodule "other"]\n\tpath = other\n\turl = ${server.url}/evil/other.git\n\tupdate = checkout\n`),
    ],
    ["100644", ".lfsconfig", text(`[lfs]\n\turl = ${server.url}/lfs\n`)],
    ["100644", "a.lfs", text(pointer)],
    ["100644", "a.txt", text("one\ntwo $Id$\n")],
    ["40000", "hooks", repository.tree([["100755", "post-checkout", text(run)]])],
    ["120000", "link-home", text(trap.folder)],
    ["120000", "link-passwd", text("/etc/passwd")],
    ["120000", "link-up", text("../../../..")],
    ["160000", "other", other],
    ["100755", "post-checkout", text(run)],
    ["100644", "with\nnewline \u001b[2J", text("a name like a line")],
  ];
  repository.commit(repository.tree(entries));

  it("triggers them in a plain clone", async () => {
    const to = path.join(os.tmpdir(), `careless-${process.pid}`);
    try {
      const url = `${server.url}/evil/traps.git`;
      await promisify(execFile)("git", ["clone", "--quiet", "--recurse-submodules", url, to], { env: trap.env }).catch(
        () => {},
      );
      expect(trap.triggered()).toEqual(expect.arrayContaining(["filter", "hook"]));
    } finally {
      fs.rmSync(to, { recursive: true, force: true });
      trap.reset();
    }
  });

  it("triggers none in our clone: links, filters, attributes and submodules have no effect", async () => {
    let seen: Record<string, string> = {};
    server.requests.length = 0;
    const ran = await clone({
      input: { repository: "evil/traps" },
      inspect: (directory) => {
        seen = filesIn(directory);
      },
    });
    clones += 1;
    expect(ran.job).toMatchObject({ state: "completed", output: { files: 14 } });
    expect(seen).toMatchObject({
      "a.txt": "one\ntwo $Id$\n",
      "a.lfs": pointer,
      "link-passwd": "/etc/passwd",
      "link-up": "../../../..",
      "-rf": "a name like an option",
    });
    expect(Object.keys(seen)).toHaveLength(14);
    expect(Object.values(seen).filter((content) => content.startsWith("-> "))).toEqual([]);
    expect(server.requests.filter(({ path }) => !path.startsWith("/evil/traps.git/"))).toEqual([]);
    expect(ran.logs.map(({ message }) => message)).toEqual(
      expect.arrayContaining([
        "A submodule is not fetched and not scanned",
        "3 symbolic links are kept as text and not followed",
      ]),
    );
  });
});

describe.concurrent("unsafe names in a tree", () => {
  const config = `[core]\n\tfsmonitor = touch ${trap.canary("config in the tree")}\n`;
  const into = (repository: Repository, name: string): Entry => [
    "40000",
    name,
    repository.tree([
      ["100644", "config", repository.blob(config)],
      ["100755", "pwned", repository.blob(`#!/bin/sh\ntouch ${trap.canary("hook in the tree")}\n`)],
    ]),
  ];
  const tricks: [what: string, make: (repository: Repository) => Entry[]][] = [
    ["..", (repository) => [into(repository, "..")]],
    [".", (repository) => [into(repository, ".")]],
    [".git", (repository) => [into(repository, ".git")]],
    [".GIT", (repository) => [into(repository, ".GIT")]],
    ["git~1", (repository) => [into(repository, "git~1")]],
    [".git with a trailing dot", (repository) => [into(repository, ".git.")]],
    [".git with a trailing space", (repository) => [into(repository, ".git ")]],
    [".git with an invisible character", (repository) => [into(repository, ".g\u200cit")]],
    [".git as an NTFS stream", (repository) => [into(repository, ".git::$INDEX_ALLOCATION")]],
    ["a path as a name", (repository) => [["100644", "../../../pwned", repository.blob("x")]]],
    ["an absolute path as a name", (repository) => [["100644", path.join(trap.folder, "pwned"), repository.blob("x")]]],
    [
      "a link and a folder with the same name",
      (repository) => [["120000", "out", repository.blob(trap.folder)], into(repository, "out")],
    ],
    ["a name that is too long", (repository) => [["100644", "n".repeat(300), repository.blob("x")]]],
    [".gitmodules as a link", (repository) => [["120000", ".gitmodules", repository.blob("../../../.gitconfig")]]],
    [
      "a submodule whose URL is an option",
      (repository) => {
        const url = `--upload-pack=touch ${trap.canary("upload-pack")}`;
        const modules = `[submodule "x"]\n\tpath = x\n\turl = "${url}"\n`;
        return [
          ["100644", ".gitmodules", repository.blob(modules)],
          ["160000", "x", "1".repeat(40)],
        ];
      },
    ],
    [
      "a submodule whose URL runs a program",
      (repository) => {
        const modules = `[submodule "x"]\n\tpath = ../x\n\turl = ext::touch% ${trap.canary("ext")}\n`;
        return [
          ["100644", ".gitmodules", repository.blob(modules)],
          ["160000", "x", "1".repeat(40)],
        ];
      },
    ],
  ];

  it.each(tricks)("%s", async (what, make) => {
    const name = `evil/trick-${tricks.findIndex(([name]) => name === what)}`;
    const repository = new Repository(server.root, name);
    repository.commit(repository.tree(make(repository)));
    const ran = await clone({ input: { repository: name } });
    clones += 1;
    if (what === "a submodule whose URL runs a program") {
      expect(ran.job.state).toBe("completed");
      return;
    }
    const refused = "Repository was rejected - it contains names or objects that are not safe to write to disk";
    expect(warningsAndErrors(ran)).toEqual([`error: ${refused}`, `error: Extraction failed: ${refused}`]);
    expect(ran.job).toMatchObject({ state: "failed", failure: { code: "CLONE_UNSAFE", name: "Fatal" } });
  });
});

describe("a name that is passed to git", () => {
  it.each([
    "--upload-pack=touch pwned/x",
    "ext::sh -c touch% pwned/x",
    "ext::sh/x",
    "file:///etc/site",
    "-acme/site",
    "acme/-site",
    "acme/..",
    "../acme/site",
    "acme//site",
    "acme/site?x=1",
    "acme/site#x",
    "user:password@evil.example.com/site",
    "evil.example.com:22/acme/site",
    "acme\\site/x",
    "acme/site\n--upload-pack=x/y",
    "acme",
  ])("is not a valid repository as %j, for the contract and for the clone", async (repository) => {
    const input = { projectId: crypto.randomUUID(), organizationId: crypto.randomUUID(), repository };
    expect(schema.safeParse(input).success).toBe(false);
    await expect(
      resolveRemote(remoteOptionsOf({ provider: "github", repository }, readSettings({}))),
    ).rejects.toMatchObject({
      code: "CLONE_NAME",
    });
  });

  it.each([
    "-b",
    "--upload-pack=touch pwned",
    "--upload-pack=./pwned",
    "--config=core.fsmonitor=id",
    "main --upload-pack=x",
    "../main",
    "main..x",
    "main@{1}",
    "main^",
    "a//b",
    "x.lock",
    "HEAD:a.txt",
    "line\nbreak",
  ])("is not a valid branch as %j, and git is not started", async (branch) => {
    server.requests.length = 0;
    const ran = await clone({ input: { repository: "evil/traps", branch } });
    clones += 1;
    expect(warningsAndErrors(ran)[0]).toBe(`error: Branch '${branch}' not found in repository`);
    expect(server.requests).toEqual([]);
  });

  it.each(["$(id)", "`id`", "a;id", "a|id", "a&&id", "%2e%2e"])(
    "is passed unchanged as the branch %j, and not found",
    async (branch) => {
      const ran = await clone({ input: { repository: "evil/traps", branch } });
      clones += 1;
      expect(warningsAndErrors(ran)[0]).toBe(`error: Branch '${branch}' not found in repository`);
    },
  );
});

it("hostile clones leave no files in the scratch directory", async () => {
  await expect.poll(() => fs.readdirSync(path.join(scratch, "jobs")), { timeout: 20_000 }).toEqual([]);
});
