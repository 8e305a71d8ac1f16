// Rules of the code base: which folders may import which, where SQL text is, which file reads the environment, which clock is used.
import fs from "node:fs";
import path from "node:path";
import { describe, expect, it } from "vitest";
import { ROOT } from "../support/processes/build.ts";

const sources = read("src", ".ts");
const statements = read("sql", ".sql");

describe("the source", () => {
  it("has no folder of more than 20 files", () => {
    const counts = new Map<string, number>();
    for (const top of [
      "src",
      "sql",
      "test",
      "ui",
      "web",
      "pipelines",
      "docs",
      "scripts",
      "bench",
      "create-stillwake",
    ]) {
      for (const entry of fs.readdirSync(path.join(ROOT, top), { recursive: true, withFileTypes: true })) {
        const folder = path.relative(ROOT, entry.parentPath);
        if (entry.isFile() && !/(^|\/)(node_modules|dist|\.cache)(\/|$)/.test(folder))
          counts.set(folder, (counts.get(folder) ?? 0) + 1);
      }
    }
    expect(counts.size).toBeGreaterThan(50);
    expect([...counts].filter(([, count]) => count > 20)).toEqual([]);
  });

  it("reads the environment in config.ts only", () => {
    // The embedded server inherits PATH, which is not configuration.
    const others = sources.filter(({ name }) => !["config.ts", "postgres/cluster.ts"].includes(name));
    expect(others.filter(({ code }) => /\bprocess\.env\b/.test(code)).map(({ name }) => name)).toEqual([]);
  });

  it("has SQL text in db/ and testing/ only", () => {
    const verb =
      /["'`]\s*(select|insert into|update|delete from|with \w+ as|create (or replace|table|schema|index|unique|function|role|database|type|view)|alter (table|role|database)|drop (table|schema|database|index|function)|begin|commit|rollback|set local|listen|notify|lock table|grant) /;
    const found = sources.filter(({ uncommented }) => verb.test(uncommented)).map(({ name }) => name);
    expect(found.filter((name) => !/^(db|testing)\//.test(name))).toEqual([]);
    expect(found.length).toBeGreaterThan(3);
  });

  it("keeps contract/ and text/ free of Node and pg, through everything they import", () => {
    const names = sources.map(({ name }) => name).filter((name) => /^(contract|text)\//.test(name));
    expect(names).toContain("contract/pipeline.ts");
    for (const name of names)
      expect(
        closure(name).filter((one) => !one.endsWith(".ts")),
        name,
      ).toEqual([]);
  });

  it("lets contract/ import errors, time and validate only, and none of them a global of Node", () => {
    const outside = closure("contract/index.ts").filter((name) => !name.startsWith("contract/"));
    expect(outside.sort()).toEqual(["errors.ts", "time.ts", "validate.ts"]);
    const loaded = sources.filter(({ name }) => name.startsWith("contract/") || outside.includes(name));
    const node = /\b(process|Buffer|setImmediate|clearImmediate|global|require|__dirname|__filename)\b(?!:)/;
    expect(loaded.filter(({ code }) => node.test(code)).map(({ name }) => name)).toEqual([]);
  });

  it("keeps the verification of webhooks free of Node and pg", () => {
    const reached = closure("webhooks/index.ts");
    expect(reached).toEqual(expect.arrayContaining(["webhooks/signature.ts", "errors.ts"]));
    expect(reached.filter((name) => !name.endsWith(".ts"))).toEqual([]);
  });

  it("imports only from the folders below", () => {
    // A folder may import from itself, from its own subfolders and from the folders named here. "." is the files of
    // src/ itself, except index.ts.
    const below: Record<string, string[]> = {
      ".": [],
      text: [],
      contract: ["."],
      db: [".", "contract"],
      secrets: [".", "contract", "db"],
      artifacts: ["."],
      live: [".", "db"],
      client: [".", "text", "contract", "db", "live", "secrets", "artifacts"],
      webhooks: [".", "db"],
      worker: [".", "text", "contract", "db", "client", "secrets", "artifacts", "webhooks"],
      server: [".", "text", "contract", "db", "client", "live"],
      orchestrator: [".", "text", "db"],
      postgres: ["."],
      testing: [".", "contract", "db", "client", "worker"],
      view: ["text"],
      react: ["text", "view"],
      element: ["view"],
      // The commands put the processes together.
      cli: [
        ".",
        "text",
        "contract",
        "db",
        "client",
        "artifacts",
        "webhooks",
        "worker",
        "server",
        "orchestrator",
        "postgres",
      ],
    };
    for (const { name, imports } of sources.filter(({ name }) => name !== "index.ts")) {
      const [folder = "."] = name.split("/").slice(0, -1);
      const foreign = imports.filter((one) => {
        const [target = "."] = one.split("/").slice(0, -1);
        return one.endsWith(".ts") && target !== folder && !below[folder]?.includes(target);
      });
      expect(foreign, `${name} imports`).toEqual([]);
    }
  });

  it("gives the demo pipelines the public entry points and nothing else", () => {
    const demo = sources.filter(({ name }) => name.startsWith("cli/demo/")).flatMap(({ imports }) => imports);
    const own = demo.filter((name) => name.endsWith(".ts") && !name.startsWith("cli/demo/"));
    expect([...new Set(own)].sort()).toEqual(["index.ts", "worker/index.ts"]);
  });

  it("keeps providers free of the database", () => {
    const providers = sources.filter(({ name }) => name.startsWith("orchestrator/providers/"));
    expect(providers.length).toBeGreaterThan(10);
    expect(providers.flatMap(({ imports }) => imports).filter((name) => /^db\/|^pg$/.test(name))).toEqual([]);
  });

  it("has no circular imports between folders, and none at all that a running program would load", () => {
    // Within a folder two files may name each other's types: `import type` is erased.
    for (const { name } of sources) expect(closure(name, "loads"), `what ${name} loads`).not.toContain(name);
    const folderOf = (name: string) => name.split("/").slice(0, -1)[0] ?? ".";
    for (const folder of new Set(sources.map(({ name }) => folderOf(name)))) {
      const outside = sources
        .filter(({ name }) => folderOf(name) === folder)
        .flatMap(({ imports }) => imports.filter((one) => one.endsWith(".ts") && folderOf(one) !== folder));
      const back = outside
        .flatMap((one) => closure(one))
        .filter((one) => one.endsWith(".ts") && folderOf(one) === folder);
      if (folder !== ".") expect(back, `what leads back to ${folder}/`).toEqual([]);
    }
  });

  it("depends on pg, and for the worker and the server on a few more, each with its reason in docs/decisions.md", () => {
    const manifest = JSON.parse(fs.readFileSync(path.join(ROOT, "package.json"), "utf8"));
    const packages = (of: Source[]) =>
      [
        ...new Set(
          of.flatMap(({ imports }) => imports).filter((name) => /^[@a-z][\w./-]*$/.test(name) && !name.endsWith(".ts")),
        ),
      ].sort();
    expect(
      packages(
        sources.filter(({ name }) => !/^(worker|server|artifacts|cli\/demo|view|react|element)\/|^tracing/.test(name)),
      ),
    ).toEqual(["pg"]);
    // Types of a library are no code.
    const libraries = Object.keys(manifest.dependencies).filter((name) => !name.startsWith("@types/"));
    expect(packages(sources)).toEqual([...libraries, "@opentelemetry/api", "react"].sort());
    const reasons = fs.readFileSync(path.join(ROOT, "docs/decisions.md"), "utf8");
    expect(Object.keys(manifest.dependencies).filter((name) => !reasons.includes(`\`${name}\``))).toEqual([]);
  });

  it("keeps the libraries of the worker and the server out of the client", () => {
    const packages = closure("index.ts").filter((name) => !/\.ts$|^node:/.test(name));
    expect(packages.sort()).toEqual(["@opentelemetry/api", "pg"]);
  });

  it("gives browsers only the view, the list virtualizer, and React for stillwake/react", () => {
    const packages = (name: string) => closure(name).filter((imported) => !imported.endsWith(".ts"));
    expect(packages("element/index.ts")).toEqual(["@tanstack/virtual-core"]);
    expect(packages("react/index.ts").sort()).toEqual(["@tanstack/virtual-core", "react"]);
    expect(closure("react/index.ts").filter((name) => !/^(react|view|text)\/|^[^.]+$/.test(name))).toEqual([]);
  });

  it("keeps the keys of sealed values out of the server", () => {
    const reached = sources.filter(({ name }) => name.startsWith("server/")).flatMap(({ imports }) => imports);
    expect(reached).toContain("contract/sealed-paths.ts");
    expect(reached.filter((name) => name.startsWith("secrets/"))).toEqual([]);
  });

  it("keeps logs, metrics and archives out of the relay, which must start quickly", () => {
    const packages = closure("worker/relay.ts").filter((name) => /^[@a-z]/.test(name) && !/\.ts$|^node:/.test(name));
    expect(packages.sort()).toEqual(["@opentelemetry/api", "aws4fetch", "pg"]);
  });

  it("uses no named statements and no session locks, which would stay with a pooled connection", () => {
    // Presence is the only exception: it uses the worker's direct connection.
    const presence = /create or replace function stillwake\.hold_presence[\s\S]*?\$\$;/;
    for (const { name, uncommented: whole } of [...sources, ...statements]) {
      const uncommented = whole.replace(presence, "");
      expect(uncommented, name).not.toMatch(/\bpg_(try_)?advisory_(?!xact_lock)/);
      expect(uncommented, name).not.toMatch(/\bset session\b|\bprepare \w+ as\b|\bpg_advisory_unlock/i);
    }
  });
});

describe("the example systems", () => {
  const names = fs
    .readdirSync(path.join(ROOT, "pipelines"), { withFileTypes: true })
    .flatMap((entry) => (entry.isDirectory() ? [entry.name] : []));
  const folders = names.map((name) => ({ name, sources: read(`pipelines/${name}/src`, ".ts") }));
  const systems = names.filter((name) => name !== "kit");

  it("import only the public entry points, like a user's project", () => {
    const { exports } = JSON.parse(fs.readFileSync(path.join(ROOT, "package.json"), "utf8"));
    const entryPoints = Object.keys(exports).map((entry) => path.posix.join("stillwake", entry));
    for (const { name, sources } of folders) {
      for (const { name: file, imports } of sources) {
        const out = imports.filter(
          (one) => one.startsWith(".") || (/^stillwake\b/.test(one) && !entryPoints.includes(one)),
        );
        expect(out, `pipelines/${name}/src/${file} imports`).toEqual([]);
      }
    }
    expect(names).toEqual(expect.arrayContaining(["kit", "extraction", "leaderboard", "clip"]));
  });

  it("have the same structure", () => {
    const parts = ["README.md", "package.json", "tables.sql", "deploy", "test", "src/contract.ts", "src/api.ts"];
    for (const name of systems) {
      const home = path.join(ROOT, "pipelines", name);
      expect(
        parts.filter((part) => !fs.existsSync(path.join(home, part))),
        name,
      ).toEqual([]);
      // One at the top, or one per folder.
      const files = fs.readdirSync(path.join(home, "src"), { recursive: true }).map(String);
      expect(files.filter((file) => /^([\w-]+\/)?pipeline\.ts$/.test(file)).length, name).toBeGreaterThan(0);
    }
  });

  it("have no file of more than 400 lines, and read the environment in their settings only", () => {
    for (const { name, sources } of folders) {
      expect(
        sources.filter(({ text }) => text.split("\n").length > 401).map((one) => one.name),
        name,
      ).toEqual([]);
      const readers = sources.filter(({ code }) => /\bprocess\.env\b/.test(code)).map((one) => one.name);
      expect(
        readers.filter((one) => !/^([\w-]+-)?settings\.ts$/.test(one)),
        name,
      ).toEqual([]);
    }
  });

  it("share a kit that imports none of them, and reads no environment", () => {
    const { sources } = folders.find(({ name }) => name === "kit")!;
    expect(sources.filter(({ code }) => /\bprocess\.env\b/.test(code)).map((one) => one.name)).toEqual([]);
    const known = sources.flatMap(({ imports }) => imports).filter((one) => one.startsWith("@stillwake/"));
    expect(known).toEqual([]);
    const shared = folders.filter(({ name }) => name !== "kit").flatMap(({ sources }) => sources);
    const foreign = shared.flatMap(({ imports }) => imports).filter((one) => /^@stillwake\/(?!kit\/)/.test(one));
    expect(foreign).toEqual([]);
  });

  it("name each library they need, with its reason, in docs/decisions.md", () => {
    const reasons = fs.readFileSync(path.join(ROOT, "docs/decisions.md"), "utf8");
    for (const name of names) {
      const { dependencies } = JSON.parse(fs.readFileSync(path.join(ROOT, "pipelines", name, "package.json"), "utf8"));
      const unexplained = Object.keys(dependencies).filter(
        (one) => one !== "stillwake" && !reasons.includes(`\`${one}\``),
      );
      expect(unexplained, name).toEqual([]);
    }
  });
});

describe("the SQL", () => {
  it("takes the time only from stillwake.now()", () => {
    const others = statements.filter(
      ({ name }) => name.startsWith("functions/") && name !== "functions/base/clock.sql",
    );
    for (const { name, uncommented } of others) {
      expect(uncommented, name).not.toMatch(
        /(?<!stillwake\.)\bnow\(\)|clock_timestamp|current_timestamp|statement_timestamp|localtime|current_date/i,
      );
    }
  });

  it("names the schema of everything it creates", () => {
    for (const { name, uncommented } of statements) {
      const made =
        uncommented.match(/create (or replace )?(function|view|table|type|sequence)\s+(?!stillwake\.)\S+/gi) ?? [];
      expect(made, name).toEqual([]);
    }
  });

  it("disables JIT for functions with pinned plans, whose estimated cost would trigger it", () => {
    const heads = statements
      .flatMap(({ text }) => text.split(/create or replace function /).slice(1))
      .map((body) => body.split("$$")[0]!);
    const pinned = heads.filter((head) => /\benable_\w+ = off/.test(head));
    expect(pinned.length).toBeGreaterThan(10);
    expect(pinned.filter((head) => !head.includes("set jit = off")).map((head) => head.slice(0, 40))).toEqual([]);
  });

  it("never locks live_jobs before leases in one function", () => {
    for (const { name, text } of statements) {
      for (const body of text.split(/create or replace function /).slice(1)) {
        const lease = body.search(/from stillwake\.leases[^;]*for (update|share)/);
        const job = body.search(/from stillwake\.live_jobs[^;]*for (update|share)/);
        if (lease >= 0 && job >= 0) expect(lease, `${name}: ${body.slice(0, 40)}`).toBeLessThan(job);
      }
    }
  });
});

interface Source {
  /** Relative to the root, such as "cli/dev.ts". */
  name: string;
  text: string;
  /** Without comments. */
  uncommented: string;
  /** Without comments and the contents of strings. */
  code: string;
  /** Files relative to src, packages by name. */
  imports: string[];
  /** Of these, without `import type`. */
  loads: string[];
}

function read(folder: string, extension: string): Source[] {
  const root = path.join(ROOT, folder);
  const names = fs.readdirSync(root, { recursive: true, encoding: "utf8" }).filter((name) => name.endsWith(extension));
  return names.map((name) => {
    const text = fs.readFileSync(path.join(root, name), "utf8");
    const uncommented =
      extension === ".sql"
        ? text.replaceAll(/--.*$/gm, "")
        : text.replaceAll(/\/\*[\s\S]*?\*\/|(?<![:"'`\w])\/\/.*$/gm, "");
    const code = uncommented.replaceAll(/"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|`(?:\\.|[^`\\])*`/g, '""');
    const importsOf = (source: string) =>
      [...source.matchAll(/(?<![.\w])(?:from|import)\s*\(?\s*"([^"]+)"/g)].map(([, target]) =>
        target!.startsWith(".") ? path.join(path.dirname(name), target!) : target!,
      );
    const loads = importsOf(uncommented.replaceAll(/^(?:import|export) type [^;]*;$/gm, ""));
    return { name, text, uncommented, code, imports: importsOf(uncommented), loads };
  });
}

/** Everything a file imports, directly or not. */
function closure(name: string, kind: "imports" | "loads" = "imports"): string[] {
  const reached = new Set<string>();
  const follow = (current: string) => {
    for (const imported of sources.find((source) => source.name === current)?.[kind] ?? []) {
      if (reached.has(imported)) continue;
      reached.add(imported);
      follow(imported);
    }
  };
  follow(name);
  return [...reached];
}
