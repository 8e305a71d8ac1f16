// The generated repositories of the sample and of tests: reproducible, and with unusual authors.
import fs from "node:fs/promises";
import os from "node:os";
import path from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { git } from "../src/demo/fast-import.ts";
import { makeSampleRepository, SAMPLE, SAMPLE_USERS } from "../src/demo/sample.ts";
import { makeRepository, shortlog } from "./support/big-repository.ts";

let root: string;
beforeAll(async () => {
  root = await fs.mkdtemp(path.join(os.tmpdir(), "stillwake-repositories-"));
});
afterAll(() => fs.rm(root, { recursive: true, force: true }));

const total = (counts: Map<string, number>) => [...counts.values()].reduce((sum, count) => sum + count, 0);
const headOf = async (directory: string) => (await git(directory, ["rev-parse", "HEAD"])).toString("utf8").trim();

describe("the sample repository", () => {
  const at = (name: string) => path.join(root, name, `${SAMPLE.repository}.git`);
  beforeAll(() => makeSampleRepository({ root: path.join(root, "one") }));

  it("has the same commits wherever it is created", async () => {
    await makeSampleRepository({ root: path.join(root, "two") });
    expect(await headOf(at("two"))).toBe(await headOf(at("one")));
  });

  it("has authors known by address, by login and not at all, and a .mailmap that joins two addresses", async () => {
    const counts = await shortlog(at("one"));
    expect([total(counts), counts.size]).toEqual([1502, 60]);
    const emails = [...counts.keys()];
    const shown = SAMPLE_USERS.flatMap(({ email }) => email ?? []);
    expect(emails).toEqual(expect.arrayContaining(shown));
    const logins = emails.flatMap((email) => /^(?:\d+\+)?(.+)@users\.noreply\.github\.com$/.exec(email)?.[1] ?? []);
    const hidden = SAMPLE_USERS.filter(({ email }) => email === null).map(({ login }) => login);
    expect(logins.sort()).toEqual(hidden.sort());
    expect(emails.filter((email) => email.endsWith("@example.org")).length).toBeGreaterThan(10);
    expect(emails).toContain("");
    const unmapped = (await git(at("one"), ["log", "--format=%ae", "HEAD"])).toString("utf8");
    expect(unmapped).toContain("@old-mail.example.net");
    expect(emails.filter((email) => email.includes("old-mail"))).toEqual([]);
  });

  it("has a commit with the declared encoding Latin-1", async () => {
    const log = (await git(at("one"), ["log", "--format=%e %an", "HEAD"])).toString("utf8");
    expect(log).toMatch(/^ISO-8859-1 Henrike Aslund \(på sjön\)$/m);
    expect((await git(at("one"), ["fsck", "--full", "--strict"])).toString("utf8")).toBe("");
  });

  it("is kept if it exists, and created again if it is outdated or incomplete", async () => {
    const { ino } = await fs.stat(at("one"));
    await makeSampleRepository({ root: path.join(root, "one") });
    expect((await fs.stat(at("one"))).ino).toBe(ino);
    const head = await headOf(at("one"));
    await fs.writeFile(path.join(at("one"), "stillwake-sample"), "of an older version");
    await fs.rm(path.join(at("one"), "refs"), { recursive: true });
    await makeSampleRepository({ root: path.join(root, "one") });
    expect(await headOf(at("one"))).toBe(head);
    expect(await fs.readdir(path.dirname(at("one")))).toEqual(["lighthouse.git"]);
  });

  it("throws ENOENT without git, and leaves no files", async () => {
    await expect(makeSampleRepository({ root: path.join(root, "none"), toolPath: root })).rejects.toMatchObject({
      code: "ENOENT",
    });
    expect(await fs.readdir(path.dirname(at("none")))).toEqual([]);
  });
});

describe("a repository for tests", () => {
  it("has the given number of commits and authors, and is the same for the same seed", async () => {
    const options = { commits: 900, authors: 70, seed: 3, mailmap: false, odd: false };
    const { head } = await makeRepository(path.join(root, "plain.git"), options);
    const counts = await shortlog(path.join(root, "plain.git"));
    expect([total(counts), counts.size]).toEqual([900, 70]);
    expect(counts.get("author-0@example.com")!).toBeGreaterThan(3 * counts.get("author-9@example.com")!);
    expect((await makeRepository(path.join(root, "again.git"), options)).head).toBe(head);
    expect((await makeRepository(path.join(root, "other.git"), { ...options, seed: 4 })).head).not.toBe(head);
  });

  it("has unusual authors", async () => {
    const directory = path.join(root, "odd.git");
    await makeRepository(directory, { commits: 1000, authors: 300, seed: 5, mailmap: true, odd: true });
    const counts = await shortlog(directory);
    expect(total(counts)).toBe(1000);
    const emails = [...counts.keys()];
    for (const pattern of [
      /^$/,
      /^jörg-/,
      /^fran\ufffdois-/,
      /^ärger-/,
      /^author \d+ at/,
      /^ /,
      /^author-\d+$/,
      /^.{900}/,
    ]) {
      expect(
        emails.filter((email) => pattern.test(email)),
        String(pattern),
      ).not.toEqual([]);
    }
    expect(emails.filter((email) => email.includes("elsewhere") || email.includes("old.example"))).toEqual([]);
    const raw = (await git(directory, ["log", "--format=%ae|%e|%P", "HEAD"])).toString("latin1");
    expect(raw).toMatch(/@Example\.COM/);
    expect(raw).toMatch(/@old\.example\.net/);
    expect(raw).toMatch(/fran\xe7ois-\d+@example\.com\|\|/);
    expect(raw).toMatch(/\|ISO-8859-1\|/);
    expect(raw.match(/\|[0-9a-f]{40} [0-9a-f]{40}$/gm)!.length).toBeGreaterThan(10);
    const elsewhere = (await git(directory, ["log", "--all", "--format=%ae"])).toString("latin1");
    expect(elsewhere).toContain("elsewhere-0@example.com");
  });
});
