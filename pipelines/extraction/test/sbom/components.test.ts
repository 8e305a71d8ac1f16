// Reading an SBOM: components, direct and transitive dependencies, files of any size and content.
import { execFile } from "node:child_process";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { promisify } from "node:util";
import { build } from "vite";
import { afterAll, describe, expect, it } from "vitest";
import { recordFigure } from "../../../../test/support/figures.ts";
import { shared } from "../../../kit/test/support/shared-data.ts";
import { readBom } from "../../src/sbom/components.ts";
import { readElements } from "../../src/sbom/json-elements.ts";
import { stripPaths } from "../../src/sbom/strip-paths.ts";

const folder = fs.mkdtempSync(path.join(os.tmpdir(), "extraction-bom-"));
afterAll(() => fs.rmSync(folder, { recursive: true, force: true }));

let files = 0;
function writeFile(text: string): string {
  const file = path.join(folder, `${++files}.json`);
  fs.writeFileSync(file, text);
  return file;
}

const root = { component: { "bom-ref": "pkg:npm/app@1.0.0", type: "application", purl: "pkg:npm/app@1.0.0" } };
const component = (purl: string, more: Record<string, unknown> = {}) => ({
  type: "library",
  name: /([^/]+)@/.exec(purl)?.[1],
  version: purl.slice(purl.lastIndexOf("@") + 1),
  purl,
  "bom-ref": purl,
  ...more,
});
const from = (file: string) => ({ properties: [{ name: "SrcFile", value: file }] });

async function directAndTransitive(bom: Record<string, unknown>): Promise<Record<string, string[]>> {
  const { dependencies } = await readBom(writeFile(JSON.stringify({ metadata: root, ...bom })));
  const names = (direct: boolean) =>
    dependencies.filter((dependency) => dependency.direct === direct).map(({ purl }) => purl.slice(4));
  return { direct: names(true), transitive: names(false) };
}

describe("direct and transitive", () => {
  it("dependencies of the root are direct, the rest of the graph is transitive", async () => {
    const components = ["pkg:npm/a@1", "pkg:npm/b@1", "pkg:npm/c@1"].map((purl) => component(purl));
    const dependencies = [
      { ref: "pkg:npm/a@1", dependsOn: ["pkg:npm/b@1"] },
      { ref: "pkg:npm/b@1", dependsOn: ["pkg:npm/c@1", "pkg:npm/a@1"] },
      { ref: "pkg:npm/app@1.0.0", dependsOn: ["pkg:npm/a@1", "pkg:npm/c@1"] },
    ];
    const expected = { direct: ["npm/a@1", "npm/c@1"], transitive: ["npm/b@1"] };
    expect(await directAndTransitive({ components, dependencies })).toEqual(expected);
    expect(await directAndTransitive({ dependencies: dependencies.toReversed(), components })).toEqual(expected);
  });

  it("dependencies of a workspace are direct, and the workspace is not a dependency", async () => {
    const workspace = { properties: [{ name: "cdx:npm:isWorkspace", value: "true" }] };
    const components = [component("pkg:npm/part@1", workspace), component("pkg:npm/a@1"), component("pkg:npm/b@1")];
    const dependencies = [
      { ref: "pkg:npm/app@1.0.0", dependsOn: ["pkg:npm/part@1"] },
      { ref: "pkg:npm/part@1", dependsOn: ["pkg:npm/a@1"] },
      { ref: "pkg:npm/a@1", dependsOn: ["pkg:npm/b@1"] },
    ];
    expect(await directAndTransitive({ components, dependencies })).toEqual({
      direct: ["npm/a@1"],
      transitive: ["npm/b@1"],
    });
  });

  it("entries of a requirements.txt are direct although there is no graph", async () => {
    const components = [component("pkg:pypi/a@1", from("py/requirements-dev.txt")), component("pkg:npm/b@1")];
    const dependencies = [{ ref: "pkg:npm/app@1.0.0", dependsOn: ["pkg:npm/b@1"] }];
    expect(await directAndTransitive({ components, dependencies })).toEqual({
      direct: ["npm/b@1", "pypi/a@1"],
      transitive: [],
    });
  });

  it("a Go module that go.mod marks as indirect is transitive", async () => {
    const metadata = { component: { "bom-ref": "pkg:golang/x" } };
    const components = [component("pkg:golang/y/net@v1"), component("pkg:golang/y/text@v1", { scope: "optional" })];
    const dependencies = [{ ref: "pkg:golang/x", dependsOn: ["pkg:golang/y/net@v1"] }];
    expect(await directAndTransitive({ metadata, components, dependencies })).toEqual({
      direct: ["golang/y/net@v1"],
      transitive: ["golang/y/text@v1"],
    });
  });

  it("ignores the root of a yarn.lock, which depends on everything", async () => {
    const components = [component("pkg:npm/a@1", from("yarn.lock")), component("pkg:npm/b@1", from("yarn.lock"))];
    const dependencies = [
      { ref: "pkg:npm/a@1", dependsOn: ["pkg:npm/b@1"] },
      { ref: "pkg:npm/app@1.0.0", dependsOn: ["pkg:npm/a@1", "pkg:npm/b@1"] },
    ];
    expect(await directAndTransitive({ components, dependencies })).toEqual({
      direct: ["npm/a@1"],
      transitive: ["npm/b@1"],
    });
  });

  it("does not list the repository's own package", async () => {
    const components = [component("pkg:npm/app@1.0.0"), component("pkg:npm/a@1")];
    expect(await directAndTransitive({ components })).toEqual({ direct: ["npm/a@1"], transitive: [] });
  });
});

describe("components", () => {
  it("have name, version, ecosystem, scope and licences, once per package URL", async () => {
    const licenses = [{ license: { id: "MIT" } }, { license: { name: "Own" } }, { expression: "MIT OR Apache-2.0" }];
    const components = [
      component("pkg:npm/%40acme/a@1.0.0", { group: "@acme", name: "a", scope: "optional", licenses }),
      component("pkg:npm/%40acme/a@1.0.0", { group: "@acme", name: "a", licenses: [{ license: { id: "ISC" } }] }),
      component("pkg:maven/org.acme/b@2", { group: "org.acme", name: "b", scope: "excluded" }),
      component("pkg:golang/acme.org/c@v1.0.0", { name: "acme.org/c" }),
    ];
    const { dependencies } = await readBom(writeFile(JSON.stringify({ metadata: root, components })));
    const found = dependencies.map(({ purl, direct, ...rest }) => rest);
    expect(found).toEqual([
      { name: "acme.org/c", version: "v1.0.0", ecosystem: "Go", scope: null, licenses: [] },
      { name: "org.acme:b", version: "2", ecosystem: "Maven", scope: "excluded", licenses: [] },
      {
        name: "@acme/a",
        version: "1.0.0",
        ecosystem: "npm",
        scope: null,
        licenses: ["MIT", "Own", "MIT OR Apache-2.0", "ISC"],
      },
    ]);
  });

  it("without a package URL are counted, and long texts are truncated", async () => {
    const components = [
      component("pkg:npm/a@1", {
        name: "n".repeat(10_000),
        version: "1\0\ud800",
        licenses: Array(1000).fill({ license: { id: "x" } }),
      }),
      { type: "file", name: "no purl" },
      { type: "library", name: 7, purl: "pkg:npm/b@1" },
      component(`pkg:npm/${"x".repeat(3000)}@1`),
      component("http://npm/a@1"),
      "text",
      null,
      [component("pkg:npm/nested@1")],
    ];
    const { dependencies, unnamed } = await readBom(writeFile(JSON.stringify({ metadata: root, components })));
    expect(dependencies).toHaveLength(1);
    expect(dependencies[0]).toMatchObject({ name: "n".repeat(300), version: "1", licenses: ["x"] });
    expect(unnamed).toBe(4);
  });

  it.each([
    ["an empty file", ""],
    ["a list", "[]"],
    ["text", "Error: no"],
    ["half a document", '{"metadata":{},"components":[{"name":"a"}'],
    ["text after the document", '{"metadata":{}} {}'],
    ["broken elements", '{"metadata":{},"components":[{"name" "a"}]}'],
    ["another kind of document", '{"components":[]}'],
  ])("refuses %s", async (_, text) => {
    await expect(readBom(writeFile(text))).rejects.toThrow();
  });

  it("are the same as with JSON.parse for any chunk size", async () => {
    const odd = ['"', "\\", '\\"', "{[", "]}", ",:", "ü", "日本", "😀", "\n", "\u2028", ""];
    const list = odd.map((a, at) => ({
      [`k${a}`]: `${odd[(at + 5) % odd.length]}${a}`,
      deep: [{ a: [a, { b: odd.at(-at) }] }, 1, null, true],
    }));
    const document = {
      first: "components",
      other: [{ components: [1] }],
      components: list,
      'dep"s': [{}],
      metadata: { a: "}" },
    };
    const expected = [...list.map((value) => ({ key: "components", value })), { key: "metadata", value: { a: "}" } }];
    for (const [indent, chunkBytes] of [
      [0, 1],
      [1, 2],
      [0, 3],
      [2, 7],
      [0, 64],
      [1, 65536],
    ] as const) {
      const file = writeFile(JSON.stringify(document, null, indent));
      const found: unknown[] = [];
      for await (const element of readElements(file, ["components", "metadata"], chunkBytes)) found.push(element);
      expect(found).toEqual(expected);
    }
  });

  const saved = shared("data/sbom/cdxgen-12.8.4-sample.json");
  it.skipIf(!saved)(`are read from a saved SBOM${saved ? "" : " (skipped: ../shared is missing)"}`, async () => {
    const { dependencies, unnamed } = await readBom(saved!);
    expect(unnamed).toBe(0);
    expect(dependencies).toHaveLength(58);
    expect(dependencies.filter(({ direct }) => direct)).toHaveLength(9);
  });
});

describe("paths of this machine", () => {
  const directories = ["/tmp/scratch/1/source", "/private/tmp/scratch/1/source", "/tmp/scratch/1", "../source"];
  const strip = async (document: unknown, chunkBytes?: number) => {
    let text = "";
    for await (const piece of stripPaths(writeFile(JSON.stringify(document)), directories, chunkBytes)) text += piece;
    return JSON.parse(text) as unknown;
  };

  it("become relative to the repository, and similar texts stay", async () => {
    const cases: [string, string][] = [
      ["/tmp/scratch/1/source/web/yarn.lock", "web/yarn.lock"],
      ["/private/tmp/scratch/1/source/a", "a"],
      ["/tmp/scratch/1/source", ""],
      ["/tmp/scratch/1/cdxgen/x", "cdxgen/x"],
      ["/tmp/scratch/1/source-map/a", "source-map/a"],
      ["/tmp/scratch/10/a", "/tmp/scratch/10/a"],
      ["/data/tmp/scratch/1/a", "/data/tmp/scratch/1/a"],
      ["read from /tmp/scratch/1/source/a b", "read from a b"],
      ["../source/a.lock", "a.lock"],
      ["../source", ""],
      ["see ../source-map and ../sources.md", "see ../source-map and ../sources.md"],
      ["../sources.md", "../sources.md"],
      ['"../source/a" is quoted', '"../source/a" is quoted'],
    ];
    expect(await strip(cases.map(([text]) => text))).toEqual(cases.map(([, expected]) => expected));
  });

  it("are stripped for any chunk size", async () => {
    const document = ['\\"', "\\", "", "日本", '"'].map((odd) => ({
      [`../source/${odd}`]: `/tmp/scratch/1/source/${odd}/x`,
      value: ["../source/b", "/tmp/scratch/1/source", odd],
    }));
    const whole = await strip(document);
    expect(JSON.stringify(whole)).not.toContain("scratch");
    for (const chunkBytes of [1, 2, 3, 5, 7, 11, 13, 64]) expect(await strip(document, chunkBytes)).toEqual(whole);
  });
});

it("reads 50,000 components in bounded memory", async () => {
  const file = path.join(folder, "large.json");
  writeLarge(file, 50_000);
  await build({
    configFile: false,
    logLevel: "silent",
    build: {
      ssr: path.resolve(import.meta.dirname, "../../src/sbom/components.ts"),
      outDir: path.join(folder, "built"),
      emptyOutDir: true,
    },
  });
  const [entry] = fs.readdirSync(path.join(folder, "built"));
  const script = `
    import { readBom } from ${JSON.stringify(path.join(folder, "built", entry!))};
    const before = process.memoryUsage().rss;
    const began = performance.now();
    const { dependencies } = await readBom(${JSON.stringify(file)});
    const direct = dependencies.filter((dependency) => dependency.direct).length;
    const kb = process.resourceUsage().maxRSS - before / 1024;
    console.log(JSON.stringify({ count: dependencies.length, direct, mb: Math.round(kb / 1024), ms: Math.round(performance.now() - began) }));`;
  const { stdout } = await promisify(execFile)(process.execPath, ["--input-type=module", "-e", script]);
  const { count, direct, mb, ms } = JSON.parse(stdout) as Record<string, number>;
  const fileMb = Math.round(fs.statSync(file).size / 2 ** 20);
  recordFigure("extraction_bom_50k_rss", mb!, "MB", `more than before, for a file of ${fileMb} MB`);
  recordFigure("extraction_bom_50k_read", ms!, "ms", "50,000 components with their graph");
  expect({ count, direct }).toEqual({ count: 50_000, direct: 500 });
  expect(mb).toBeLessThan(250);
}, 60_000);

/** Like cdxgen's output: a little over 1 KB per component. */
function writeLarge(file: string, count: number): void {
  const purl = (n: number) => `pkg:npm/package-number-${n}@1.${n % 10}.0`;
  const licenses = [
    {
      license: {
        id: "MIT",
        url: "https://opensource.org/licenses/MIT",
        properties: Array(5).fill({ name: "cdx:license:category", value: "Permissive" }),
      },
    },
  ];
  const evidence = {
    identity: [
      {
        field: "purl",
        confidence: 1,
        methods: [{ technique: "manifest-analysis", confidence: 1, value: "package-lock.json" }],
      },
    ],
  };
  const hashes = [{ alg: "SHA-512", content: "ab".repeat(64) }];
  const out = fs.openSync(file, "w");
  fs.writeSync(out, `{"bomFormat":"CycloneDX","metadata":${JSON.stringify(root)},"components":[`);
  for (let n = 0; n < count; n++) {
    const json = component(purl(n), { group: "", hashes, licenses, evidence, ...from("package-lock.json") });
    fs.writeSync(out, (n > 0 ? "," : "") + JSON.stringify(json));
  }
  const direct = Array.from({ length: 500 }, (_, n) => purl(n));
  fs.writeSync(out, `],"dependencies":[${JSON.stringify({ ref: "pkg:npm/app@1.0.0", dependsOn: direct })}`);
  for (let n = 0; n < count; n++) {
    const targets = [1, 7, 31, 500].map((step) => n + step).filter((other) => other >= 500 && other < count);
    fs.writeSync(out, `,${JSON.stringify({ ref: purl(n), dependsOn: targets.map(purl) })}`);
  }
  fs.writeSync(out, "]}");
  fs.closeSync(out);
}
