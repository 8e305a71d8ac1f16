// Isolated git: accepted versions, allowed addresses, handling of tokens, and the local git server.
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
import { type RemoteOptions, resolveRemote } from "../src/git/address.ts";
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
const optionsFor = (base: string, more: Partial<RemoteOptions> = {}): RemoteOptions => ({
  repository: "acme/site",
  name: "GitLab",
  base,
  allowAddresses: [],
  prefix: "EXAMPLE",
  ...more,
});

afterAll(async () => {
  for (const gitServer of [server, guarded]) await gitServer.close();
  fs.rmSync(folder, { recursive: true, force: true });
});

describe("git", () => {
  it.each([
    "2.39.5",
    "2.39.5 (Apple Git-154)",
    "2.43.7",
    "2.45.4.windows.1",
    "2.50.1",
    "2.51.0",
    "2.60.0.rc1",
    "3.0.0",
  ])("version %s is accepted", (version) => {
    expect(() => checkVersion(`git version ${version}\n`)).not.toThrow();
  });

  it.each([
    ["2.30.2", "Git 2.30.2 on the worker is not safe to clone with - install git 2.39.4 or later"],
    ["2.39.3", "Git 2.39.3 on the worker is not safe to clone with - install git 2.39.4 or later"],
    ["2.45.1", "Git 2.45.1 on the worker is not safe to clone with - install git 2.45.4 or later"],
    ["1.9.1", "Git 1.9.1 on the worker is not safe to clone with - install git 2.39.4 or later"],
    ["unknown", "The git version of the worker is unknown - install git 2.39.4 or later"],
  ])("version %s is refused", (version, message) => {
    expect(() => checkVersion(`git version ${version}`)).toThrow(message);
  });

  it("connects to the checked address, whatever its own resolver would return", async () => {
    const port = new URL(server.url).port;
    const options = optionsFor(`http://git.example.invalid:${port}`, { allowAddresses: ["127.0.0.0/8"] });
    const { url, pin } = await resolveRemote(options, async () => [{ address: "127.0.0.1", family: 4 }]);
    expect(pin).toBe(`git.example.invalid:${port}:127.0.0.1`);
    const listing = promisify(execFile)("git", [
      "-c",
      `http.curloptResolve=${pin}`,
      "ls-remote",
      url,
      "refs/heads/main",
    ]);
    const { stdout: heads } = await listing;
    expect(heads).toBe(`${commit}\trefs/heads/main\n`);
  });

  it.each([
    ["one private address among public ones", ["140.82.121.4", "10.0.0.7"]],
    ["a loopback address", ["::1"]],
    ["the metadata address of a cloud", ["169.254.169.254"]],
    ["an IPv4-mapped private address", ["::ffff:192.168.1.1"]],
  ])("does not start for a host that resolves to %s", async (_case, addresses) => {
    const resolve = async () => addresses.map((address) => ({ address, family: address.includes(":") ? 6 : 4 }));
    await expect(resolveRemote(optionsFor("https://gitlab.com"), resolve)).rejects.toMatchObject({
      code: "CLONE_ADDRESS",
      message:
        "Connecting to gitlab.com is not allowed - the operator can allow its network with EXAMPLE_ALLOW_ADDRESSES",
    });
  });

  it.each([
    "https://user:secret@gitlab.com",
    "ssh://git@gitlab.com",
    "gitlab.com",
    "https://gitlab.com/?a=1",
    "ext::sh -c id",
  ])("does not start for the host URL %s", async (url) => {
    await expect(resolveRemote(optionsFor(url))).rejects.toMatchObject({
      code: "CLONE_HOST",
      message: "The URL of GitLab is not valid - set EXAMPLE_GITLAB_URL to its https URL, without a user",
    });
  });

  it("uses the path of the operator's URL", async () => {
    const options = optionsFor("https://git.example.com/gitlab/", { repository: "a/b/c.git" });
    const resolve = async () => [{ address: "2606:50c0:8000::64", family: 6 }];
    expect(await resolveRemote(options, resolve)).toEqual({
      url: "https://git.example.com/gitlab/a/b/c.git",
      origin: "https://git.example.com",
      host: "git.example.com",
      protocol: "https",
      pin: "git.example.com:443:[2606:50c0:8000::64]",
      confidential: true,
    });
  });

  it("uses a mirror only for the repositories of its owner", async () => {
    const mirrors = [{ owner: "acme", url: "https://git.acme.example" }];
    const resolve = async () => [{ address: "140.82.121.4", family: 4 }];
    const mirrored = await resolveRemote(optionsFor("https://gitlab.com", { mirrors }), resolve);
    expect(mirrored).toMatchObject({ url: "https://git.acme.example/acme/site.git", mirror: true });
    const other = await resolveRemote(
      optionsFor("https://gitlab.com", { mirrors, repository: "acme-two/site" }),
      resolve,
    );
    expect(other).toMatchObject({ url: "https://gitlab.com/acme-two/site.git" });
    expect(other.mirror).toBeUndefined();
  });

  it.each([
    ["https to any address", "https://git.example.com", [], ["140.82.121.4"], true],
    ["http to a public address", "http://git.example.com", [], ["140.82.121.4"], false],
    ["http to an allowed network", "http://git.home", ["10.0.0.0/8"], ["10.0.0.7", "10.1.0.7"], true],
    ["http to an allowed port of an address", "http://git.home:3000", ["fd00::7/128 3000,3001"], ["fd00::7"], true],
    [
      "http to the IPv4-mapped form of an allowed address",
      "http://git.home",
      ["10.0.0.0/8"],
      ["::ffff:10.0.0.7"],
      true,
    ],
    ["http if one address is not allowed", "http://a.example", ["10.0.0.0/8"], ["10.0.0.7", "140.82.121.4"], false],
    ["http to an address that is not allowed", "http://140.82.121.4", ["10.0.0.0/8"], [], false],
    ["http to an allowed address", "http://[fd00::7]", ["fd00::/8"], [], true],
  ])("whether the connection is confidential: %s", async (_case, base, allowAddresses, addresses, confidential) => {
    const resolve = async () => addresses.map((address) => ({ address, family: address.includes(":") ? 6 : 4 }));
    expect(await resolveRemote(optionsFor(base, { allowAddresses }), resolve)).toMatchObject({ confidential });
  });

  it.each([
    ["a mirror", { mirror: true }],
    ["a host without a confidential connection", { confidential: false }],
  ] as const)("sends no token to %s", async (_case, more) => {
    const paths = { folder: path.join(folder, "token"), home: folder, objects: path.join(folder, "token") };
    const limits = { cloneBytes: 2 ** 30, cloneMs: 60_000, slowBytes: 1000, slowSeconds: 60 };
    const code = implement(pipeline("sending", { retry: { attempts: 1 } }), async (job) => {
      const resolved = await resolveRemote(optionsFor(guarded.url, { allowAddresses: ["127.0.0.0/8"] }));
      for (const remote of [resolved, { ...resolved, ...more }]) {
        const credential = { user: "user", token: TOKEN };
        const git = openGit(job, { paths, limits, purpose: "read", remote, credential });
        await git.fetch(["ls-remote", "--", remote.url]).catch(() => {});
      }
    });
    guarded.requests.length = 0;
    await runJob(code, {}, { url });
    expect(guarded.requests.some(({ authorization }) => authorization)).toBe(true);
    expect(guarded.requests.at(-1)?.authorization).toBeUndefined();
  });
});

it("a bare repository is fetched without files and read line by line, and no file contains the token", async () => {
  const clone = path.join(folder, "clone");
  const paths = { folder: clone, home: path.join(clone, "home"), objects: path.join(clone, "objects") };
  fs.mkdirSync(paths.home, { recursive: true });
  const limits = { cloneBytes: 2 ** 30, cloneMs: 60_000, slowBytes: 1000, slowSeconds: 60 };
  const code = implement(pipeline("reading", { retry: { attempts: 1 } }), async (job) => {
    const remote = await resolveRemote(optionsFor(guarded.url, { allowAddresses: ["127.0.0.0/8"] }));
    const credential = { user: "user", token: TOKEN };
    const git = openGit(job, { paths, limits, purpose: "read", remote, credential });
    await git.local(["init", "--bare", "--template=", "--quiet"]);
    const args = ["fetch", "--quiet", "--filter=tree:0", "--no-tags", "--", remote.url, "+refs/heads/*:refs/heads/*"];
    await git.fetch([`--git-dir=${paths.objects}`, ...args]);
    const lines: string[] = [];
    for await (const line of git.local(["log", "--format=%H", "refs/heads/main"])) lines.push(line);
    return lines;
  });
  const { job } = await runJob(code, {}, { url });
  expect(job).toMatchObject({ state: "completed", output: [commit] });
  const files = fs.readdirSync(clone, { recursive: true, withFileTypes: true }).filter((entry) => entry.isFile());
  for (const { parentPath, name } of files)
    expect(fs.readFileSync(path.join(parentPath, name), "latin1"), name).not.toContain(TOKEN);
});

it.each([
  [5, ">5GB"],
  [0.5, ">0.5GB"],
  [1.25, ">1.25GB"],
])("a limit of %d GB is shown as %s", (limit, shown) => {
  const { message } = tooLarge({ limits: { cloneBytes: limit * 2 ** 30 }, purpose: "scan" });
  expect(message).toBe(`Repository is too large to scan (${shown})`);
});

it("the local git server survives invalid request paths", async () => {
  const { url, close } = await serveRepositories({ root, toolPath });
  const get = (requested: string) =>
    new Promise<number | undefined>((resolve, reject) => {
      http.get(url, { path: requested }, (response) => resolve(response.resume().statusCode)).on("error", reject);
    });
  try {
    for (const invalid of ["//", "http://[", "//:x/"]) expect(await get(invalid)).toBe(400);
    expect(await get("/acme/nothing.git/info/refs?service=git-upload-pack")).toBe(404);
    expect(await get("/acme/site.git/info/refs?service=git-upload-pack")).toBe(200);
  } finally {
    await close();
  }
});
