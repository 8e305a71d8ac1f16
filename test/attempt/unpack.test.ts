// unpack() with untrusted archives. After each hostile one the surroundings of the target are checked: any change
// outside the target, and any link inside it, counts as an escape.
import { execFileSync } from "node:child_process";
import fs from "node:fs";
import path from "node:path";
import zlib from "node:zlib";
import { afterAll, beforeEach, describe, expect, it } from "vitest";
import { type UnpackLimits, unpack } from "../../src/worker/archive/unpack.ts";
import { temporaryDirectory } from "../support/cleanup.ts";
import { type Item, overlappingZip, oversizedHeader, tar, zip } from "../support/fakes/archives.ts";
import { recordFigure } from "../support/figures.ts";

const home = temporaryDirectory("unpack");
let neighbourhood: string;
let into: string;
let numbers = 0;
let escapes = 0;
let hostile = 0;

beforeEach(() => {
  neighbourhood = path.join(home, String(++numbers));
  into = path.join(neighbourhood, "inner/into");
  fs.mkdirSync(path.dirname(into), { recursive: true });
  fs.writeFileSync(path.join(neighbourhood, "precious"), "precious");
});
afterAll(() => {
  recordFigure("escapes from hostile archives", escapes, "", `${hostile} hostile archives`);
});

const formats = {
  zip: (items: Item[]) => zip(items),
  tar: (items: Item[]) => tar(items),
  "tar.gz": (items: Item[]) => zlib.gzipSync(tar(items)),
};
type Format = keyof typeof formats;
const both = ["zip", "tar"] as const;
const all = ["zip", "tar", "tar.gz"] as const;

const file = (name: string, content: string | Buffer): Item => ({ name, content });
const link = (name: string, target: string): Item => ({ name, type: "2", link: target });
const directory = (name: string): Item => ({ name, type: "5" });

function pack(format: Format, items: Item[] | Buffer): string {
  const archive = path.join(home, `archive-${++numbers}`);
  fs.writeFileSync(archive, Buffer.isBuffer(items) ? items : formats[format](items));
  return archive;
}

/** All files with content and links with target, except those inside the target directory. */
function outside(): Record<string, string> {
  const entries = fs.readdirSync(neighbourhood, { recursive: true, withFileTypes: true });
  const places = entries
    .map((entry) => path.join(entry.parentPath, entry.name))
    .filter((place) => !place.startsWith(into));
  const look = (place: string) =>
    fs.lstatSync(place).isFile() ? fs.readFileSync(place, "utf8") : fs.lstatSync(place).mode.toString(8);
  return Object.fromEntries(
    [...places, "/tmp/stillwake-escape", "/stillwake-escape"]
      .filter(fs.existsSync)
      .map((place) => [place, look(place)]),
  );
}

/** Unpacks, counts escapes, and returns the result or the error. */
async function attack(archive: string, limits: Partial<UnpackLimits> = {}) {
  const before = outside();
  const result = await unpack(archive, into, limits).then(
    (unpacked) => ({ unpacked, code: undefined, message: undefined }),
    (error) => ({ unpacked: undefined, code: error.code, message: error.message }),
  );
  const after = outside();
  const links = fs.existsSync(into) ? tree().filter((name) => !/[df]$/.test(name)) : [];
  hostile++;
  if (JSON.stringify(before) !== JSON.stringify(after) || links.length > 0) escapes++;
  expect(after).toEqual(before);
  expect(links).toEqual([]);
  return result;
}

/** Names in the target, each with a letter for its kind. */
function tree(): string[] {
  const entries = fs.readdirSync(into, { recursive: true, withFileTypes: true });
  return entries
    .map(
      (entry) =>
        `${path.relative(into, path.join(entry.parentPath, entry.name))} ${entry.isDirectory() ? "d" : entry.isFile() ? "f" : "?"}`,
    )
    .sort();
}

describe.each(all)("a .%s", (format) => {
  it("is unpacked unchanged, readable only by the owner, with execute permission kept", async () => {
    const large = Buffer.alloc(700_000, "content ");
    const items: Item[] = [
      directory("./"),
      directory("dir/"),
      { name: "dir/a.txt", content: "hello", mode: 0o644 },
      { name: "./dir/run.sh", content: "#!/bin/sh", mode: 0o4777 },
      file("new/deep/large.bin", large),
      file("empty", ""),
      file("ünï/文.txt", "x"),
    ];
    const unpacked = await unpack(pack(format, items), into);
    expect(unpacked).toEqual({ files: 5, bytes: large.length + 15, skipped: [] });
    expect(tree()).toEqual(
      [
        "dir d",
        "dir/a.txt f",
        "dir/run.sh f",
        "empty f",
        "new d",
        "new/deep d",
        "new/deep/large.bin f",
        "ünï d",
        "ünï/文.txt f",
      ].sort(),
    );
    expect(fs.readFileSync(path.join(into, "new/deep/large.bin")).equals(large)).toBe(true);
    const modes = ["", "dir", "dir/a.txt", "dir/run.sh"].map(
      (name) => fs.statSync(path.join(into, name)).mode & 0o7777,
    );
    expect(modes).toEqual([0o700, 0o700, 0o600, 0o700]);
  });

  it("is recognized by its content, and unpacked only into an empty directory", async () => {
    const archive = pack(format, [file("a", "x")]);
    fs.mkdirSync(into);
    expect(await unpack(archive, into)).toMatchObject({ files: 1 });
    await expect(unpack(archive, into)).rejects.toMatchObject({ code: "INVALID_INPUT", field: "into" });
    expect(tree()).toEqual(["a f"]);
    fs.mkdirSync(`${into}-empty`);
    fs.symlinkSync(`${into}-empty`, `${into}-link`);
    await expect(unpack(archive, `${into}-link`)).rejects.toMatchObject({ code: "INVALID_INPUT" });
  });

  it("that is truncated or damaged leaves nothing", async () => {
    const whole = formats[format]([
      { name: "dir/first", content: "x".repeat(5000) },
      { name: "second", content: Buffer.from(Array.from({ length: 5000 }, (_, i) => (i * i) % 251)) },
    ]);
    const damaged = Buffer.from(whole);
    const at = format === "tar" ? 512 + 5120 + 10 : Math.floor(whole.length / 2);
    damaged[at]! ^= 0xff;
    for (const bytes of [damaged, whole.subarray(0, format === "tar" ? 7000 : whole.length - 20)]) {
      await expect(unpack(pack(format, bytes), into)).rejects.toMatchObject({
        code: "BROKEN_ARCHIVE",
        remedy: expect.any(String),
      });
      expect(fs.existsSync(into)).toBe(false);
    }
  });

  it("stops with the signal", async () => {
    const archive = pack(format, [{ name: "a", content: "x".repeat(100_000) }]);
    await expect(unpack(archive, into, {}, AbortSignal.abort(new Error("enough")))).rejects.toThrow("enough");
    expect(fs.existsSync(into)).toBe(false);
  });
});

describe.each(both)("a hostile .%s", (format) => {
  it.each([
    ["../stillwake-escape"],
    ["a/../../stillwake-escape"],
    ["a/b/../../../../precious"],
    [".."],
    ["/tmp/stillwake-escape"],
    ["//tmp/stillwake-escape"],
    ["..\\stillwake-escape"],
    ["a\\b"],
    ["C:stillwake-escape"],
    ["c:/stillwake-escape"],
  ])("with the name %s is rejected completely", async (name) => {
    const { code } = await attack(pack(format, [file("good", "x"), file(name, "evil")]));
    expect(code).toBe("UNSAFE_ARCHIVE");
    expect(fs.existsSync(into)).toBe(false);
    // The same inside a directory, and as a link, which would not be created anyway.
    expect((await attack(pack(format, [directory(`${name}/`)]))).code).toBe("UNSAFE_ARCHIVE");
    expect((await attack(pack(format, [link(name, "x")]))).code).toBe("UNSAFE_ARCHIVE");
  });

  it("with links, devices and pipes is unpacked without them, and lists them", async () => {
    const specials: Item[] = [
      link("soft", "../../precious"),
      ...(format === "tar" ? [{ name: "hard", type: "1", link: "../../precious" }] : []),
      { name: "tty", type: "3" },
      { name: "disk", type: "4" },
      { name: "pipe", type: "6" },
    ];
    const { unpacked } = await attack(pack(format, [...specials, file("good", "x"), file("line\nbreak", "x")]));
    expect(tree()).toEqual(["good f"]);
    expect(unpacked).toMatchObject({ files: 1, bytes: 1 });
    const why: Record<string, string> = { soft: "link", hard: "link", tty: "device", disk: "device", pipe: "pipe" };
    expect(unpacked?.skipped).toEqual([
      ...specials.map(({ name }) => ({ name, why: `it is a ${why[name]}` })),
      { name: "line\nbreak", why: "its name has control characters" },
    ]);
  });

  it.each<[what: string, items: Item[]]>([
    ["writes through a link to a directory", [link("out", "../.."), file("out/precious", "evil")]],
    ["writes through a link to a file", [link("out", "../../precious"), file("out", "evil")]],
    ["makes a directory of a link", [link("out", "../.."), directory("out/"), file("out/precious", "evil")]],
    ["replaces a directory by a link", [directory("dir/"), link("dir", "../.."), file("dir/precious", "evil")]],
    ["has a name twice", [file("a", "1"), file("a", "2")]],
    ["has a file under a file", [file("a", "1"), file("a/b", "2")]],
    ["has names that differ by case", [file("Readme", "1"), file("README", "2")]],
    ["has directories that differ by case", [file("src/a", "1"), file("SRC/b", "2")]],
    ["has a link that differs by case", [link("OUT", "../.."), file("out/precious", "evil")]],
    ["has names that differ by Unicode's form", [file("caf\u00e9", "1"), file("cafe\u0301", "2")]],
    ["has names that are equal only in upper case", [file("stra\u00dfe", "1"), file("STRASSE", "2")]],
    ["has names that are equal only in lower case", [file("\u03f4", "1"), file("\u03b8", "2")]],
  ])("that %s is rejected completely", async (_, items) => {
    expect((await attack(pack(format, items))).code).toBe("UNSAFE_ARCHIVE");
    expect(fs.existsSync(into)).toBe(false);
  });

  it("that exceeds a limit is stopped", async () => {
    const many = Array.from({ length: 11 }, (_, i) => ({ name: `f${i}`, content: "x".repeat(10) }));
    const deep = [file(`${"d/".repeat(65)}f`, "x")];
    const cases: [Item[], Partial<UnpackLimits>, string][] = [
      [many, { maxFiles: 10 }, "more than 10 entries"],
      [many, { maxBytes: 109 }, "more than 109 bytes"],
      [deep, {}, "more than 64 nested directories"],
      [many.map(({ name }) => link(name, "x")), { maxFiles: 10 }, "more than 10 entries"],
    ];
    for (const [items, limits, text] of cases) {
      const { code, message } = await attack(pack(format, items), limits);
      expect({ code, message }).toEqual({ code: "ARCHIVE_TOO_LARGE", message: expect.stringContaining(text) });
      expect(fs.existsSync(into)).toBe(false);
    }
    expect((await attack(pack(format, many), { maxFiles: 11, maxBytes: 110 })).unpacked).toMatchObject({
      files: 11,
      bytes: 110,
    });
  });

  it.each([["x".repeat(256)], ["x".repeat(200).concat("/").repeat(6)]])(
    "with a name that no file system accepts is rejected",
    async (name) => {
      const { code } = await attack(pack(format, [file(`${name}y`, "x")]));
      expect(code).toBe("UNSAFE_ARCHIVE");
    },
  );
});

describe("a bomb", () => {
  const zeros = Buffer.alloc(6_000_000);

  it.each<[what: string, archive: () => Buffer]>([
    ["a .zip", () => zip([file("bomb", zeros)])],
    ["a .tar.gz", () => zlib.gzipSync(tar([file("bomb", zeros)]))],
    ["a .tar.gz with bytes outside of files", () => zlib.gzipSync(Buffer.concat([tar([file("a", "x")]), zeros]))],
    [
      "a .tar.gz of headers only",
      () => zlib.gzipSync(Buffer.concat(Array.from({ length: 8 }, () => oversizedHeader()))),
    ],
    ["a .zip in which all files share their bytes", () => overlappingZip(200)],
  ])("in %s is stopped by its ratio", async (_, archive) => {
    const { code, message } = await attack(pack("zip", archive()));
    expect({ code, message }).toEqual({
      code: "ARCHIVE_TOO_LARGE",
      message: expect.stringContaining("200 times its size"),
    });
    expect(fs.existsSync(into)).toBe(false);
  });

  it("is not a small archive of a repetitive file, nor a large one with a higher limit", async () => {
    expect((await attack(pack("zip", [file("log", Buffer.alloc(900_000))]))).unpacked).toMatchObject({
      bytes: 900_000,
    });
    fs.rmSync(into, { recursive: true });
    expect((await attack(pack("zip", [file("bomb", zeros)]), { maxRatio: 2000 })).unpacked).toMatchObject({
      bytes: 6_000_000,
    });
  });

  it("that understates its size is stopped at that size, and by bytes without a size", async () => {
    const limits = { maxRatio: 1e9, maxBytes: 1_000_000 };
    const small = await attack(pack("zip", [{ name: "bomb", content: zeros, claim: 10 }]), limits);
    expect(small).toMatchObject({
      code: "BROKEN_ARCHIVE",
      message: expect.stringContaining("does not match its header"),
    });
    const large = await attack(pack("zip", [{ name: "bomb", content: zeros, claim: 0xfffffffe }]), limits);
    expect(large).toMatchObject({ code: "ARCHIVE_TOO_LARGE", message: expect.stringContaining("1000000 bytes") });
    expect(fs.existsSync(into)).toBe(false);
  });

  it("that only overstates its size is unpacked by its real size", async () => {
    const liar = await attack(pack("zip", [{ name: "a", content: "x", claim: 0xfffffffe }]));
    expect(liar.code).toBe("BROKEN_ARCHIVE");
  });

  it.skipIf(!zlib.crc32)("or any file with a wrong checksum is rejected", async () => {
    expect((await attack(pack("zip", [{ name: "a", content: "x", crc: 1 }]))).code).toBe("BROKEN_ARCHIVE");
  });

  it("inside another archive stays packed", async () => {
    const twice = zlib.gzipSync(zlib.gzipSync(tar([file("a", zeros)])));
    expect((await attack(pack("tar", twice))).code).toBe("UNKNOWN_ARCHIVE");
  });

  it.each([
    ["an empty file", ""],
    ["a text", "hello, world"],
    ["a longer text", "x".repeat(2000)],
    ["another format", "7z\xbc\xaf\x27\x1c"],
  ])("is not looked for in %s", async (_, content) => {
    expect((await attack(pack("tar", Buffer.from(content, "latin1")))).code).toBe("UNKNOWN_ARCHIVE");
  });
});

it("reads archives of common tools", async () => {
  const source = path.join(neighbourhood, "source");
  const long = path.join(source, "d".repeat(60), "e".repeat(60));
  fs.mkdirSync(long, { recursive: true });
  fs.writeFileSync(path.join(long, "file"), "in a long directory");
  fs.symlinkSync("/etc/passwd", path.join(source, "link"));
  for (const flags of ["--format=gnu -czf", "--format=pax -cf", "--format=ustar -czf"]) {
    const archive = path.join(home, `tool-${++numbers}`);
    execFileSync("tar", [...flags.split(" "), archive, "-C", source, "."]);
    expect(await unpack(archive, `${into}-${numbers}`)).toMatchObject({
      files: 1,
      bytes: 19,
      skipped: [{ name: "./link", why: "it is a link" }],
    });
  }
});
