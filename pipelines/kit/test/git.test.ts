// Git and what stands around it: which one is used, where it may connect to, what it is held to, and the small server of our own.
import { execFile } from "node:child_process";
import fs from "node:fs";
import http from "node:http";
import os from "node:os";
import path from "node:path";
import { promisify } from "node:util";
import { pipeline } from "stillwake";
import { runJob } from "stillwake/testing";
import { implement } from "stillwake/worker";
import { afterAll, describe, expect, it } from "vitest";
import { freshDatabase } from "../../../test/support/database/database.ts";
import { serveRepositories } from "../src/demo/git-server.ts";
import { locate, type Whereabouts } from "../src/git/address.ts";
import { checkVersion, openGit } from "../src/git/git.ts";
import { tooLarge } from "../src/git/limits.ts";
import { faultyGitServer, Repository } from "./support/git-server.ts";

const folder = fs.mkdtempSync(path.join(os.tmpdir(), "kit-git-"));
const root = path.join(folder, "repositories");
const toolPath = process.env.PATH ?? "";
const { url } = await freshDatabase();
const TOKEN = "sesame-sesame";
const server = await faultyGitServer({ root });
const guarded = await faultyGitServer({ root, token: TOKEN });
const site = new Repository(root, "acme/site");
const commit = site.commitFiles({ "package.json": "{}" });
const at = (base: string, more: Partial<Whereabouts> = {}): Whereabouts => ({
  repository: "acme/site",
  name: "GitLab",
  base,
  allowAddresses: [],
  prefix: "EXAMPLE",
  ...more,
});

afterAll(async () => {
  for (const one of [server, guarded]) await one.close();
  fs.rmSync(folder, { recursive: true, force: true });
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
    const where = at(`http://git.example.invalid:${port}`, { allowAddresses: ["127.0.0.0/8"] });
    const { url, pin } = await locate(where, async () => [{ address: "127.0.0.1", family: 4 }]);
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
    await expect(locate(at("https://gitlab.com"), resolve)).rejects.toMatchObject({
      code: "CLONE_ADDRESS",
      message:
        "gitlab.com may not be connected to from here - the operator can allow its range by EXAMPLE_ALLOW_ADDRESSES",
    });
  });

  it.each([
    "https://user:secret@gitlab.com",
    "ssh://git@gitlab.com",
    "gitlab.com",
    "https://gitlab.com/?a=1",
    "ext::sh -c id",
  ])("is not started for a host at %s", async (url) => {
    await expect(locate(at(url))).rejects.toMatchObject({
      code: "CLONE_HOST",
      message: "The address of GitLab is not valid - set EXAMPLE_GITLAB_URL to its https address, without a user",
    });
  });

  it("is given an address below the operator's path", async () => {
    const where = at("https://git.example.com/gitlab/", { repository: "a/b/c.git" });
    const resolve = async () => [{ address: "2606:50c0:8000::64", family: 6 }];
    expect(await locate(where, resolve)).toEqual({
      url: "https://git.example.com/gitlab/a/b/c.git",
      origin: "https://git.example.com",
      host: "git.example.com",
      protocol: "https",
      pin: "git.example.com:443:[2606:50c0:8000::64]",
      confidential: true,
    });
  });

  it("is given the address of a mirror for the repositories of its owner alone", async () => {
    const mirrors = [{ owner: "acme", url: "https://git.acme.example" }];
    const resolve = async () => [{ address: "140.82.121.4", family: 4 }];
    const mirrored = await locate(at("https://gitlab.com", { mirrors }), resolve);
    expect(mirrored).toMatchObject({ url: "https://git.acme.example/acme/site.git", mirror: true });
    const other = await locate(at("https://gitlab.com", { mirrors, repository: "acme-two/site" }), resolve);
    expect(other).toMatchObject({ url: "https://gitlab.com/acme-two/site.git" });
    expect(other.mirror).toBeUndefined();
  });

  it.each([
    ["https wherever it leads", "https://git.example.com", [], ["140.82.121.4"], true],
    ["http to a public address", "http://git.example.com", [], ["140.82.121.4"], false],
    [
      "http to a network that the operator has named",
      "http://git.home",
      ["10.0.0.0/8"],
      ["10.0.0.7", "10.1.0.7"],
      true,
    ],
    ["http to one port of an address", "http://git.home:3000", ["fd00::7/128 3000,3001"], ["fd00::7"], true],
    ["http to a named address in other clothes", "http://git.home", ["10.0.0.0/8"], ["::ffff:10.0.0.7"], true],
    ["http where one address is not named", "http://a.example", ["10.0.0.0/8"], ["10.0.0.7", "140.82.121.4"], false],
    ["http to an address that is not named", "http://140.82.121.4", ["10.0.0.0/8"], [], false],
    ["http to an address that is", "http://[fd00::7]", ["fd00::/8"], [], true],
  ])(
    "is told whether others can read what is sent: %s",
    async (_what, base, allowAddresses, addresses, confidential) => {
      const resolve = async () => addresses.map((address) => ({ address, family: address.includes(":") ? 6 : 4 }));
      expect(await locate(at(base, { allowAddresses }), resolve)).toMatchObject({ confidential });
    },
  );

  it.each([
    ["a mirror", { mirror: true }],
    ["a host by a line that others can read", { confidential: false }],
  ] as const)("sends no token to %s, whatever it is given", async (_what, more) => {
    const places = { folder: path.join(folder, "told"), home: folder, objects: path.join(folder, "told") };
    const limits = { cloneBytes: 2 ** 30, cloneMs: 60_000, slowBytes: 1000, slowSeconds: 60 };
    const code = implement(pipeline("telling", { retry: { attempts: 1 } }), async (job) => {
      const found = await locate(at(guarded.url, { allowAddresses: ["127.0.0.0/8"] }));
      for (const remote of [found, { ...found, ...more }]) {
        const credential = { user: "anybody", token: TOKEN };
        const git = openGit(job, { places, limits, purpose: "read", remote, credential });
        await git.fetch(["ls-remote", "--", remote.url]).catch(() => {});
      }
    });
    guarded.requests.length = 0;
    await runJob(code, {}, { url });
    expect(guarded.requests.some(({ authorization }) => authorization)).toBe(true);
    expect(guarded.requests.at(-1)?.authorization).toBeUndefined();
  });
});

it("a bare repository without any files is fetched into a folder that stays, and read line by line without the token", async () => {
  const kept = path.join(folder, "kept");
  const places = { folder: kept, home: path.join(kept, "home"), objects: path.join(kept, "objects") };
  fs.mkdirSync(places.home, { recursive: true });
  const limits = { cloneBytes: 2 ** 30, cloneMs: 60_000, slowBytes: 1000, slowSeconds: 60 };
  const code = implement(pipeline("reading", { retry: { attempts: 1 } }), async (job) => {
    const remote = await locate(at(guarded.url, { allowAddresses: ["127.0.0.0/8"] }));
    const credential = { user: "anybody", token: TOKEN };
    const git = openGit(job, { places, limits, purpose: "read", remote, credential });
    await git.local(["init", "--bare", "--template=", "--quiet"]);
    const what = ["fetch", "--quiet", "--filter=tree:0", "--no-tags", "--", remote.url, "+refs/heads/*:refs/heads/*"];
    await git.fetch([`--git-dir=${places.objects}`, ...what]);
    const lines: string[] = [];
    for await (const line of git.local(["log", "--format=%H", "refs/heads/main"])) lines.push(line);
    return lines;
  });
  const { job } = await runJob(code, {}, { url });
  expect(job).toMatchObject({ state: "completed", output: [commit] });
  const files = fs.readdirSync(kept, { recursive: true, withFileTypes: true }).filter((entry) => entry.isFile());
  for (const { parentPath, name } of files)
    expect(fs.readFileSync(path.join(parentPath, name), "latin1"), name).not.toContain(TOKEN);
});

it.each([
  [5, ">5GB"],
  [0.5, ">0.5GB"],
  [1.25, ">1.25GB"],
])("a limit of %d GB is said as %s", (limit, said) => {
  const { message } = tooLarge({ limits: { cloneBytes: limit * 2 ** 30 }, purpose: "scan" });
  expect(message).toBe(`Repository is too large to scan (${said})`);
});

it("a git server of ours outlives an address that is none", async () => {
  const { url, close } = await serveRepositories({ root, toolPath });
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
