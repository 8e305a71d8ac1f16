// Loading a folder of advisories: formats, invalid files, duplicates, limits.
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { afterAll, describe, expect, it } from "vitest";
import { recordFigure } from "../../../../test/support/figures.ts";
import { loadAdvisories, readAdvisory } from "../../src/vulnerabilities/advisories.ts";

const root = fs.mkdtempSync(path.join(os.tmpdir(), "extraction-advisories-"));
afterAll(() => fs.rmSync(root, { recursive: true, force: true }));
const LEFT_PAD = { name: "left-pad", ecosystem: "npm" };
const never = new AbortController().signal;

describe("a folder of advisories", () => {
  it("is read recursively as JSON and YAML, only for the wanted packages", async () => {
    const folder = folderOf({
      "npm/a.json": osv("A-1"),
      "pypi/deep/b.yaml":
        "id: B-1\naffected:\n- package: {name: Some_Thing, ecosystem: PyPI}\n  versions: [5.10, '5.2']\n",
      "pypi/c.yml": "id: C-1\naffected:\n- package: {name: other, ecosystem: PyPI}\n  versions: ['1']\n",
      "pypi/d.yaml":
        "id: D-1\naffected:\n- package:\n    name: &name |-\n      some-thing\n    ecosystem: PyPI\n  versions: ['7']\ncredits:\n- name: A Person\n",
      "README.md": "# not an advisory",
      ".git/config.json": "not ours",
    });
    const { count, broken, byPackage } = await loadAdvisories(
      folder,
      new Set(["npm/left-pad", "PyPI/some-thing"]),
      never,
    );
    expect([count, broken.count, [...byPackage.keys()].sort()]).toEqual([4, 0, ["PyPI/some-thing", "npm/left-pad"]]);
    // With YAML types, 5.10 would be the number 5.1.
    expect(
      byPackage
        .get("PyPI/some-thing")!
        .map(({ affected }) => affected.versions)
        .sort(),
    ).toEqual([["5.10", "5.2"], ["7"]]);
  });

  it("may contain invalid files, which are counted and named", async () => {
    const folder = folderOf({
      "good.json": osv("A-1"),
      "cut.json": osv("A-2").slice(0, 40),
      "list.json": "[]",
      "tabs.yaml": "\t- {",
      "bomb.yaml": `a: &a [x,x,x,x,x,x,x,x,x]\n${"bcdefgh".replace(/./g, (at) => `${at}: &${at} [${`*${String.fromCharCode(at.charCodeAt(0) - 1)},`.repeat(9)}]\n`)}`,
    });
    const { count, broken } = await loadAdvisories(folder, new Set(["npm/left-pad"]), never);
    expect([count, broken.count]).toEqual([1, 4]);
    expect([...broken.names].sort()).toEqual(["bomb.yaml", "cut.json", "list.json", "tabs.yaml"]);
  });

  it("has each advisory once, no withdrawn ones, and follows links to files but not to folders", async () => {
    const folder = folderOf({
      "a.json": osv("A-1"),
      "again.json": osv("A-1"),
      "gone.json": osv("A-2", { withdrawn: "2026-01-01T00:00:00Z" }),
    });
    const elsewhere = folderOf({ "b.json": osv("B-1") });
    fs.symlinkSync(path.join(elsewhere, "b.json"), path.join(folder, "b.json"));
    fs.symlinkSync(folder, path.join(folder, "loop"));
    const { count, broken, byPackage } = await loadAdvisories(folder, new Set(["npm/left-pad"]), never);
    expect([count, broken.count, byPackage.get("npm/left-pad")!.length]).toEqual([2, 0, 2]);
  });

  it("has the newest version of an advisory in several files", async () => {
    const at = (modified: string, fixed: string, more = {}) =>
      osv("A-1", { modified, affected: [{ package: LEFT_PAD, versions: [fixed] }], ...more });
    const [old, recent] = [at("2024-01-01T00:00:00Z", "1"), at("2025-01-01T00:00:00Z", "2")];
    for (const [first, second] of [
      [old, recent],
      [recent, old],
    ] as const) {
      const folder = folderOf({ "a.json": first, "b/a.json": second });
      const { count, byPackage } = await loadAdvisories(folder, new Set(["npm/left-pad"]), never);
      expect([count, byPackage.get("npm/left-pad")!.map(({ affected }) => affected.versions)]).toEqual([1, [["2"]]]);
    }
    const gone = at("2026-01-01T00:00:00Z", "3", { withdrawn: "2026-01-01T00:00:00Z" });
    const { count, byPackage } = await loadAdvisories(
      folderOf({ "a.json": old, "b.json": gone, "c.json": recent }),
      new Set(["npm/left-pad"]),
      never,
    );
    expect([count, byPackage.size]).toEqual([0, 0]);
  });

  it("treats null in YAML as missing, so `withdrawn: null` is not withdrawn", async () => {
    const yaml = (id: string, value: string) =>
      `id: ${id}\nsummary: ${value}\nwithdrawn: ${value}\naffected:\n- package: {name: left-pad, ecosystem: npm}\n  versions: ['1']\n`;
    const folder = folderOf({
      "a.yaml": yaml("A-1", "null"),
      "b.yaml": yaml("A-2", "~"),
      "c.yaml": yaml("A-3", ""),
      "d.yaml": yaml("A-4", "2026-01-01T00:00:00Z"),
    });
    const { count, byPackage } = await loadAdvisories(folder, new Set(["npm/left-pad"]), never);
    expect([count, byPackage.get("npm/left-pad")!.map(({ advisory }) => advisory.summary)]).toEqual([
      3,
      ["A-1", "A-2", "A-3"],
    ]);
  });

  it("skips and counts files that are too large and folders that are too deep", async () => {
    const folder = folderOf({
      "a.json": osv("A-1"),
      "large.json": `${" ".repeat(5 * 2 ** 20)}${osv("A-2")}`,
      "1/2/3/4/5/6/7/8/9/10/b.json": osv("A-3"),
    });
    const { count, skipped } = await loadAdvisories(folder, new Set(["npm/left-pad"]), never);
    expect([count, skipped]).toEqual([1, 2]);
  });

  it("is not read further after the step is aborted", async () => {
    const folder = folderOf({ "a.json": osv("A-1") });
    await expect(loadAdvisories(folder, new Set(), AbortSignal.abort(new Error("stopped")))).rejects.toThrow("stopped");
  });

  it("of 500 files is read quickly", async () => {
    const folder = folderOf(Object.fromEntries(Array.from({ length: 500 }, (_, at) => [`${at}.json`, osv(`A-${at}`)])));
    const began = performance.now();
    const { count } = await loadAdvisories(folder, new Set(["npm/left-pad"]), never);
    const tookMs = performance.now() - began;
    expect(count).toBe(500);
    recordFigure("extraction: 500 advisories read", Math.round(tookMs), "ms");
  });
});

describe("an advisory", () => {
  it("is valid or undefined, whatever its fields contain", () => {
    for (const invalid of [null, 1, "x", [], {}, { id: 7, affected: [] }, { id: "A", affected: {} }]) {
      expect(readAdvisory(invalid)).toBeUndefined();
    }
    const odd = readAdvisory({
      id: "A-1",
      aliases: ["CVE-1900-0001", 5, null],
      summary: `half a pair \ud83d and a NUL \0 and\nlines ${"x".repeat(1000)}`,
      severity: "high",
      references: [{ url: "javascript:alert(1)" }, { url: "https://example.com/a" }],
      affected: [
        null,
        { package: "left-pad" },
        { package: { name: "left-pad", ecosystem: "npm" }, ranges: [{ type: "SEMVER", events: [{ introduced: 0 }] }] },
      ],
    });
    expect(odd).toMatchObject({ aliases: ["CVE-1900-0001"], url: "https://example.com/a" });
    expect(odd).toHaveProperty("affected.length", 1);
    const { summary } = odd as { summary: string };
    expect(summary).toMatch(/^half a pair and a NUL and lines x+…$/);
    expect(summary.length).toBeLessThanOrEqual(300);
  });

  it("links to the page of its database", () => {
    const url = (id: string) => (readAdvisory(JSON.parse(osv(id))) as { url: string | null }).url;
    expect(url("GHSA-p6mc-m468-83gw")).toBe("https://github.com/advisories/GHSA-p6mc-m468-83gw");
    expect(url("GO-2021-0113")).toBe("https://osv.dev/vulnerability/GO-2021-0113");
    expect(url("GHSA-../../evil")).toBeNull();
  });
});

function folderOf(files: Record<string, string>): string {
  const folder = fs.mkdtempSync(path.join(root, "folder-"));
  for (const [name, text] of Object.entries(files)) {
    fs.mkdirSync(path.dirname(path.join(folder, name)), { recursive: true });
    fs.writeFileSync(path.join(folder, name), text);
  }
  return folder;
}

function osv(id: string, more: object = {}): string {
  const ranges = [{ type: "SEMVER", events: [{ introduced: "0" }, { fixed: "1.3.0" }] }];
  return JSON.stringify({ id, affected: [{ package: { name: "left-pad", ecosystem: "npm" }, ranges }], ...more });
}
