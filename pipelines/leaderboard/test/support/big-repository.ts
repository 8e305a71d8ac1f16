// Creates large repositories with unusual authors in seconds: many commits that share one tree. And git's own count of commits by
// author, to compare with.
import { git, importRepository } from "../../src/demo/fast-import.ts";
import { randomFrom, rankFrom } from "../../src/demo/random.ts";

export interface RepositoryOptions {
  /** Commits reachable from HEAD. */
  commits: number;
  /** Each has at least one commit if there are enough; the first one has the most. "author-0@example.com" and so on. */
  authors: number;
  seed: number;
  /** Every tenth author has a second address, which .mailmap maps to the first. */
  mailmap: boolean;
  /** Every seventh author is one of ODD, every fiftieth commit is a merge, and some refs are not reachable from HEAD. */
  odd: boolean;
}

/** One byte per character. */
type Binary = string;

interface Person {
  name: Binary;
  emails: Binary[];
  encoding?: string;
}

const BEGAN = 1_600_000_000;
const CHUNK = 2 ** 18;

const ODD: ((number: number) => Partial<Person>)[] = [
  () => ({ emails: [""] }),
  // With a declared encoding, so git converts it to UTF-8.
  (number) => ({ name: `J\xfcrgen M\xfcller ${number}`, encoding: "ISO-8859-1" }),
  (number) => ({ emails: [`j\xf6rg-${number}@example.com`], encoding: "ISO-8859-1" }),
  // Without a declared encoding: git outputs the bytes as they are.
  (number) => ({ name: `Fran\xe7ois ${number}` }),
  (number) => ({ emails: [`fran\xe7ois-${number}@example.com`] }),
  (number) => ({ emails: [`author-${number}@example.com`, `Author-${number}@Example.COM`] }),
  (number) => ({ emails: [binary(`ÄRGER-${number}@example.com`), binary(`ärger-${number}@example.com`)] }),
  (number) => ({ emails: [`author ${number} at example dot com`] }),
  (number) => ({ emails: [` author-${number}@example.com `] }),
  (number) => ({ emails: [`author-${number}`] }),
  (number) => ({ name: binary(`${"Maximiliána ".repeat(400)}${number}`) }),
  (number) => ({ emails: [`${"long-".repeat(200)}${number}@example.com`] }),
  () => ({ name: "" }),
  (number) => ({ name: `"Quoted, ${number}" \\ 'or' $(so); %00 \t tab` }),
  (number) => ({ emails: [`"author ${number}"@example.com`] }),
  (number) => ({ emails: [`${7000 + number}+author-${number}@users.noreply.github.com`] }),
];

/** Creates a bare repository whose HEAD is main. The same options give the same commits. */
export async function makeRepository(directory: string, options: RepositoryOptions): Promise<{ head: string }> {
  return { head: await importRepository(directory, chunks(lines(options))) };
}

/** Commits by address as git counts them with .mailmap, in lower case. */
export async function shortlog(directory: string): Promise<Map<string, number>> {
  const counts = new Map<string, number>();
  // Without a revision git shortlog reads from stdin.
  const output = (await git(directory, ["shortlog", "--summary", "--numbered", "--email", "HEAD"])).toString("latin1");
  for (const line of output.split("\n").filter(Boolean)) {
    const [, count, email] = /^ *(\d+)\t.*<([^<>]*)>$/s.exec(line) ?? [];
    if (count === undefined || email === undefined)
      throw new Error(`unexpected line of git shortlog: ${JSON.stringify(line)}`);
    const folded = Buffer.from(email, "latin1").toString("utf8").toLowerCase();
    counts.set(folded, (counts.get(folded) ?? 0) + Number(count));
  }
  return counts;
}

function* lines({ commits, authors, seed, mailmap, odd }: RepositoryOptions): Generator<Binary> {
  const random = randomFrom(seed);
  const people = Array.from({ length: authors }, (_, number) => person(number, { mailmap, odd }));
  const pick = rankFrom(random, authors);
  yield* blob(1, "A repository for tests.\n");
  yield* blob(2, mailmap ? mailmapOf(people) : "# empty\n");

  let created = 0;
  // Each author has a first commit, then they are picked at random.
  const next = () => people[created < authors ? created : pick()]!;
  const commit = (branch: string, by: Person, parents = ""): Binary => {
    created += 1;
    const email = by.emails[Math.floor(random() * by.emails.length)]!;
    const who = `${by.name}${by.name && " "}<${email}> ${BEGAN + created * 60} +0000`;
    const encoding = by.encoding ? `encoding ${by.encoding}\n` : "";
    return `commit ${branch}\nmark :${created + 10}\nauthor ${who}\ncommitter ${who}\n${encoding}data 2\n.\n${parents}`;
  };

  const main = "refs/heads/main";
  yield `${commit(main, next())}M 100644 :1 README.md\nM 100644 :2 .mailmap\n`;
  while (created < commits) {
    const tip = created + 10;
    if (odd && created % 50 === 0 && created + 3 <= commits) {
      // A branch with one commit that is merged and deleted, like a pull request.
      yield commit("refs/heads/side", next(), `from :${tip}\n`);
      yield commit(main, next(), `from :${tip}\n`);
      yield commit(main, next(), `from :${created + 10}\nmerge :${tip + 1}\n`);
      yield "reset refs/heads/side\n\n";
    } else {
      yield commit(main, next(), `from :${tip}\n`);
    }
  }
  if (odd) yield* others(`from :${created + 10}\n`, commit);
  yield "done\n";
}

/** Commits not reachable from HEAD, by authors without other commits. */
function* others(from: string, commit: (branch: string, by: Person, parents: string) => Binary): Generator<Binary> {
  const refs = [
    "refs/heads/release/1.x",
    "refs/heads/zzz",
    "refs/heads/HEAD-to-be",
    "refs/tags/v1",
    "refs/pull/1/head",
  ];
  for (const [index, ref] of refs.entries()) {
    yield commit(ref, { name: "Not Counted", emails: [`elsewhere-${index}@example.com`] }, from);
  }
}

function person(number: number, { mailmap, odd }: Pick<RepositoryOptions, "mailmap" | "odd">): Person {
  const plain: Person = { name: `Author ${number}`, emails: [`author-${number}@example.com`] };
  if (mailmap && number % 10 === 3) plain.emails.push(`author-${number}@old.example.net`);
  if (!odd || number % 7 !== 5) return plain;
  return { ...plain, ...ODD[Math.floor(number / 7) % ODD.length]!(number) };
}

/** Uses all forms of .mailmap entries. */
function mailmapOf(people: readonly Person[]): Binary {
  const moved = people.filter(({ emails: [, before] }) => before?.endsWith("@old.example.net"));
  const entries = moved.map(({ name, emails: [now, before] }, index) => {
    if (index % 3 === 0 || !name) return `<${now}> <${before}>\n`;
    return index % 3 === 1 ? `${name} <${now}> <${before!.toUpperCase()}>\n` : `${name} <${now}> ${name} <${before}>\n`;
  });
  return `# moved\n${entries.join("")}`;
}

function* blob(mark: number, content: Binary): Generator<Binary> {
  yield `blob\nmark :${mark}\ndata ${content.length}\n${content}\n`;
}

function* chunks(texts: Iterable<Binary>): Generator<Buffer> {
  let text = "";
  for (const part of texts) {
    text += part;
    if (text.length < CHUNK) continue;
    yield Buffer.from(text, "latin1");
    text = "";
  }
  yield Buffer.from(text, "latin1");
}

function binary(text: string): Binary {
  return Buffer.from(text, "utf8").toString("latin1");
}
