// Counts commits by author from the output of `git log`, line by line. Memory is limited to some thousands of addresses,
// however many commits and authors there are.
import { createHash, randomUUID } from "node:crypto";
import type { Clone } from "./clone.ts";

export interface Count {
  email: string;
  /** Name in the newest commit. */
  name: string;
  /** Login in a GitHub noreply address. */
  login: string | null;
  commits: number;
}

interface CountOptions {
  /** Count only commits after this one. */
  since: string | undefined;
  /** Called repeatedly; counts of the same address add up. */
  flush(counts: Count[]): Promise<void>;
  onProgress(commits: number): void;
}

/** Addresses per flush. */
const MAX_AUTHORS = 20_000;
const PROGRESS_EVERY = 5000;
/** A B-tree key has at most 2,704 bytes; a longer address is stored as its beginning and its hash. */
const MAX_EMAIL = 1000;
const MAX_NAME = 200;

const SEPARATOR = "\u0001";

/** Returns the number of commits. */
export async function countCommits(
  { git, head, mailmap }: Clone,
  { since, flush, onProgress }: CountOptions,
): Promise<number> {
  const counts = new Map<string, Count>();
  let commits = 0;
  const options = ["-c", `mailmap.blob=${mailmap ?? ""}`, "-c", "mailmap.file=", "-c", "log.showSignature=false"];
  // A name with a carriage return spans two lines. The random prefix marks real records; no author could have written it.
  const prefix = `${randomUUID()} `;
  const range = since === undefined ? [head] : [head, `^${since}`];
  const lines = git.local(
    [...options, "log", "--encoding=UTF-8", "--no-color", `--format=${prefix}%aE%x01%aN`, ...range, "--"],
    {
      maxOutput: 64 * 1024,
    },
  );
  for await (const line of lines) {
    if (!line.startsWith(prefix)) continue;
    const [email = "", name = ""] = line.slice(prefix.length).split(SEPARATOR, 2);
    commits += 1;
    const key = normalizeEmail(email);
    const count = counts.get(key);
    if (count) count.commits += 1;
    else counts.set(key, { email: key, name: normalizeName(name), login: loginFromNoreply(key) ?? null, commits: 1 });
    if (counts.size >= MAX_AUTHORS) {
      await flush([...counts.values()]);
      counts.clear();
    }
    if (commits % PROGRESS_EVERY === 0) onProgress(commits);
  }
  if (counts.size > 0) await flush([...counts.values()]);
  return commits;
}

/** In lower case, and as Postgres can store it. */
function normalizeEmail(raw: string): string {
  const email = withoutControls(raw).trim().toLowerCase();
  if (Buffer.byteLength(email) <= MAX_EMAIL) return email;
  return `${[...email].slice(0, 100).join("")}…${createHash("sha256").update(email).digest("hex")}`;
}

function normalizeName(raw: string): string {
  const name = withoutControls(raw).replace(/\s+/g, " ").trim();
  return name.length > MAX_NAME ? `${[...name].slice(0, MAX_NAME - 1).join("")}…` : name;
}

function withoutControls(text: string): string {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are removed.
  return text.replace(/[\u0000-\u001f\u007f]+/g, " ");
}

/** Noreply addresses of GitHub contain the login: [1234567+]ada@users.noreply.github.com, also dependabot[bot]. */
const NOREPLY = /^(?:\d{1,15}\+)?([a-z\d](?:[a-z\d_-]{0,99})(?:\[bot\])?)@users\.noreply\.github\.com$/;

/** Undefined for other addresses. The number is ignored, because an author can write any number. */
export function loginFromNoreply(email: string): string | undefined {
  return NOREPLY.exec(email.toLowerCase())?.[1];
}
