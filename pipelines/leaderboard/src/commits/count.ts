// Counts commits by author as git tells of them, line by line. Held in memory are some thousands of addresses at a time, however many commits and authors there are.
import { createHash, randomUUID } from "node:crypto";
import { namedBy } from "../noreply.ts";
import type { Clone } from "./clone.ts";

export interface Count {
  email: string;
  /** As it stands in the newest commit. */
  name: string;
  /** Whom the address names itself. */
  login: string | null;
  commits: number;
}

interface Counting {
  /** Only what came since this commit. */
  since: string | undefined;
  /** Adds to what it was given before. */
  flush(counts: Count[]): Promise<void>;
  onProgress(commits: number): void;
}

/** Of one portion. */
const MAX_AUTHORS = 20_000;
const PROGRESS_EVERY = 5000;
/** A key of a B-tree has at most 2,704 bytes; an address that is longer is known by its beginning and its hash. */
const MAX_EMAIL = 1000;
const MAX_NAME = 200;

const BETWEEN = "\u0001";

/** Answers how many commits there were. */
export async function countCommits(
  { git, head, mailmap }: Clone,
  { since, flush, onProgress }: Counting,
): Promise<number> {
  const counts = new Map<string, Count>();
  let commits = 0;
  const options = ["-c", `mailmap.blob=${mailmap ?? ""}`, "-c", "mailmap.file=", "-c", "log.showSignature=false"];
  // A name with a carriage return in it is two lines. What begins a commit is known to nobody who could have written it there.
  const mark = `${randomUUID()} `;
  const range = since === undefined ? [head] : [head, `^${since}`];
  const lines = git.local(
    [...options, "log", "--encoding=UTF-8", "--no-color", `--format=${mark}%aE%x01%aN`, ...range, "--"],
    {
      maxOutput: 64 * 1024,
    },
  );
  for await (const line of lines) {
    if (!line.startsWith(mark)) continue;
    const [email = "", name = ""] = line.slice(mark.length).split(BETWEEN, 2);
    commits += 1;
    const key = emailOf(email);
    const known = counts.get(key);
    if (known) known.commits += 1;
    else counts.set(key, { email: key, name: nameOf(name), login: namedBy(key) ?? null, commits: 1 });
    if (counts.size >= MAX_AUTHORS) {
      await flush([...counts.values()]);
      counts.clear();
    }
    if (commits % PROGRESS_EVERY === 0) onProgress(commits);
  }
  if (counts.size > 0) await flush([...counts.values()]);
  return commits;
}

/** In small letters, as nobody has two mailboxes that differ in them, and as Postgres can keep it. */
function emailOf(written: string): string {
  const email = storable(written).trim().toLowerCase();
  if (Buffer.byteLength(email) <= MAX_EMAIL) return email;
  return `${[...email].slice(0, 100).join("")}…${createHash("sha256").update(email).digest("hex")}`;
}

function nameOf(written: string): string {
  const name = storable(written).replace(/\s+/g, " ").trim();
  return name.length > MAX_NAME ? `${[...name].slice(0, MAX_NAME - 1).join("")}…` : name;
}

/** Without control characters; halves of a pair cannot come out of UTF-8. */
function storable(text: string): string {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: those are the ones.
  return text.replace(/[\u0000-\u001f\u007f]+/g, " ");
}
