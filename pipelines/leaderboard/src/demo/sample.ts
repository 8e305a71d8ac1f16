// Creates the sample repository with git fast-import: three years of commits by sixty invented people, always the same.
import { createHash } from "node:crypto";
import fs from "node:fs/promises";
import path from "node:path";
import { importRepository } from "./fast-import.ts";
import { randomFrom, rankFrom } from "./random.ts";
import { AUTHORS, type Author } from "./sample-people.ts";

export { SAMPLE_USERS } from "./sample-people.ts";

export const SAMPLE = { name: "Sample repository", repository: "stillwake-sample/lighthouse" };

const COMMITS = 1500;
/** Monday, 6 February 2023, 08:00 UTC. */
const FIRST_COMMIT_AT = 1_675_670_400;
/** Average time between two commits; the last one is of December 2025. */
const PAUSE_SECONDS = 60_000;
/** Every 25th commit goes through all authors in turn, so that each of them has one. */
const ROTATION = 25;
/** File in the repository with the hash of the stream it was created from. */
const VERSION_FILE = "stillwake-sample";

/** Creates the bare repository `<root>/stillwake-sample/lighthouse.git` if it is missing. Throws ENOENT if git is not installed. */
export async function makeSampleRepository({ root, toolPath }: { root: string; toolPath?: string }): Promise<void> {
  const directory = path.join(root, `${SAMPLE.repository}.git`);
  const stream = sampleStream();
  const version = createHash("sha256").update(stream).digest("hex");
  if ((await fs.readFile(path.join(directory, VERSION_FILE), "utf8").catch(() => "")) === version) return;
  await fs.mkdir(path.dirname(directory), { recursive: true });
  // Created beside its final path and renamed, so that an interrupted start leaves no incomplete repository.
  const temporary = await fs.mkdtemp(`${directory}-`);
  try {
    await importRepository(temporary, [stream], toolPath);
    await fs.writeFile(path.join(temporary, VERSION_FILE), version);
    await fs.rm(directory, { recursive: true, force: true });
    await fs.rename(temporary, directory);
  } finally {
    await fs.rm(temporary, { recursive: true, force: true });
  }
}

function sampleStream(): Buffer {
  const random = randomFrom(1822);
  const pick = rankFrom(random, AUTHORS.length);
  const parts: Buffer[] = [];
  let when = FIRST_COMMIT_AT;
  for (let number = 1; number <= COMMITS; number++) {
    when += Math.ceil(random() * 2 * PAUSE_SECONDS);
    const author = AUTHORS[number % ROTATION === 0 ? (number / ROTATION) % AUTHORS.length : pick()]!;
    // The older of two addresses was used in the first half.
    const email = (number < COMMITS / 2 && author.emails[1]) || author.emails[0];
    const subject = SUBJECTS[Math.floor(random() * SUBJECTS.length)]!;
    const file = FILES[Math.floor(random() * FILES.length)]!;
    parts.push(commit(number, { ...author, email, when, subject, files: { [file]: revision(file, number) } }));
  }
  // A commit in Latin-1, with another spelling of the author's name.
  const old = { ...AUTHORS[0]!, name: "Henrike Aslund (på sjön)", email: AUTHORS[0]!.emails[0] };
  const log = {
    subject: "Add the log of the crossing to Åland",
    files: { "docs/crossing.md": "Light seen at 04:10.\n" },
  };
  parts.push(commit(COMMITS + 1, { ...old, ...log, when: when + PAUSE_SECONDS, encoding: "ISO-8859-1" }));
  const last = { ...AUTHORS[1]!, email: AUTHORS[1]!.emails[0], when: when + 2 * PAUSE_SECONDS };
  const files = { ".mailmap": mailmap(AUTHORS), "README.md": "# Lighthouse\n\nKeeps a light and says who kept it.\n" };
  parts.push(commit(COMMITS + 2, { ...last, subject: "Say who is who", files }), Buffer.from("done\n"));
  return Buffer.concat(parts);
}

interface Commit {
  name: string;
  email: string;
  zone: string;
  /** In seconds. */
  when: number;
  subject: string;
  files: Record<string, string>;
  /** Default UTF-8. */
  encoding?: "ISO-8859-1";
}

function commit(number: number, { name, email, zone, when, subject, files, encoding }: Commit): Buffer {
  const bytes = (text: string) => Buffer.from(text, encoding ? "latin1" : "utf8");
  const data = (content: Buffer) => [Buffer.from(`data ${content.length}\n`), content, Buffer.from("\n")];
  const who = `${name} <${email}> ${when} ${zone}`;
  const parts = [
    Buffer.from(`commit refs/heads/main\nmark :${number}\n`),
    bytes(`author ${who}\ncommitter ${who}\n`),
    ...(encoding ? [Buffer.from(`encoding ${encoding}\n`)] : []),
    ...data(bytes(`${subject}\n`)),
  ];
  for (const [file, content] of Object.entries(files)) {
    parts.push(Buffer.from(`M 100644 inline ${file}\n`), ...data(Buffer.from(content)));
  }
  return Buffer.concat(parts);
}

function mailmap(authors: readonly Author[]): string {
  const lines = authors.flatMap(({ name, emails: [now, before] }) => (before ? [`${name} <${now}> <${before}>`] : []));
  return `${lines.join("\n")}\n`;
}

function revision(file: string, number: number): string {
  return file.endsWith(".md") ? `Revision ${number}.\n` : `export const revision = ${number};\n`;
}

const FILES = [
  "src/lamp.ts",
  "src/lens.ts",
  "src/fog-signal.ts",
  "src/tide.ts",
  "src/watch.ts",
  "src/charts/soundings.ts",
  "src/charts/bearings.ts",
  "test/lamp.test.ts",
  "test/tide.test.ts",
  "docs/keeping.md",
  "docs/signals.md",
];

const SUBJECTS = [
  "Turn the lens at an even speed",
  "Read the tide from the nearest gauge",
  "Keep the watch when the clock changes",
  "Sound the horn once the fog is nearer than a mile",
  "Say which lamp has failed",
  "Show bearings in degrees and in points",
  "Take soundings from two charts",
  "Test the lamp with a bulb that has burnt out",
  "Write down how oil is trimmed",
  "Remove the second spring",
  "Let the keeper put a signal off",
  "Round the range down, never up",
  "Wait for the generator before the lamp",
  "Name the harbour in each message",
  "Make the log readable at night",
];
