// Repositories as large and as odd as real ones, made in seconds: one tree again and again under many commits. And what git itself says about who committed, which
// is what a count of ours is held to.
import { git, importRepository } from "../../src/demo/fast-import.ts";
import { randomFrom, rankFrom } from "../../src/demo/random.ts";

export interface RepositoryOptions {
  /** That can be reached from HEAD. */
  commits: number;
  /** Each has at least one commit, as far as there are so many; the first one has most. Theirs is "author-0@example.com" and so on. */
  authors: number;
  seed: number;
  /** Every tenth author has used a second address, which .mailmap joins to the first. */
  mailmap: boolean;
  /** Every seventh author is one of ODD, every fiftieth commit is a merge, and there are branches and a tag that HEAD does not reach. */
  odd: boolean;
}

/** Bytes, one in each character. */
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
  // Told in the commit's header, so git gives them out as UTF-8: the name, and an address.
  (number) => ({ name: `J\xfcrgen M\xfcller ${number}`, encoding: "ISO-8859-1" }),
  (number) => ({ emails: [`j\xf6rg-${number}@example.com`], encoding: "ISO-8859-1" }),
  // Told nowhere: git gives out the bytes as they are.
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

/** Makes a bare repository whose HEAD is main. The same options give the same commits. */
export async function makeRepository(directory: string, options: RepositoryOptions): Promise<{ head: string }> {
  return { head: await importRepository(directory, chunks(lines(options))) };
}

/** Commits by address, of HEAD, as git counts them: .mailmap is respected, letters are folded to small ones. */
export async function shortlog(directory: string): Promise<Map<string, number>> {
  const counts = new Map<string, number>();
  // Without a revision it would read a log from its input.
  const output = (await git(directory, ["shortlog", "--summary", "--numbered", "--email", "HEAD"])).toString("latin1");
  for (const line of output.split("\n").filter(Boolean)) {
    const [, count, email] = /^ *(\d+)\t.*<([^<>]*)>$/s.exec(line) ?? [];
    if (count === undefined || email === undefined) throw new Error(`git shortlog says ${JSON.stringify(line)}`);
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
  yield* blob(2, mailmap ? mailmapOf(people) : "# Nobody has moved.\n");

  let made = 0;
  // Everybody has a first commit; then chance decides.
  const next = () => people[made < authors ? made : pick()]!;
  const commit = (branch: string, by: Person, parents = ""): Binary => {
    made += 1;
    const email = by.emails[Math.floor(random() * by.emails.length)]!;
    const who = `${by.name}${by.name && " "}<${email}> ${BEGAN + made * 60} +0000`;
    const encoding = by.encoding ? `encoding ${by.encoding}\n` : "";
    return `commit ${branch}\nmark :${made + 10}\nauthor ${who}\ncommitter ${who}\n${encoding}data 2\n.\n${parents}`;
  };

  const main = "refs/heads/main";
  yield `${commit(main, next())}M 100644 :1 README.md\nM 100644 :2 .mailmap\n`;
  while (made < commits) {
    const tip = made + 10;
    if (odd && made % 50 === 0 && made + 3 <= commits) {
      // Two sides of which each has a commit, and what brings them together. The side's branch is gone afterwards, as after a pull request.
      yield commit("refs/heads/side", next(), `from :${tip}\n`);
      yield commit(main, next(), `from :${tip}\n`);
      yield commit(main, next(), `from :${made + 10}\nmerge :${tip + 1}\n`);
      yield "reset refs/heads/side\n\n";
    } else {
      yield commit(main, next(), `from :${tip}\n`);
    }
  }
  if (odd) yield* others(`from :${made + 10}\n`, commit);
  yield "done\n";
}

/** What HEAD does not reach, by people who are nowhere else. */
function* others(from: string, commit: (branch: string, by: Person, parents: string) => Binary): Generator<Binary> {
  const places = [
    "refs/heads/release/1.x",
    "refs/heads/zzz",
    "refs/heads/HEAD-to-be",
    "refs/tags/v1",
    "refs/pull/1/head",
  ];
  for (const [index, place] of places.entries()) {
    yield commit(place, { name: "Not Counted", emails: [`elsewhere-${index}@example.com`] }, from);
  }
}

function person(number: number, { mailmap, odd }: Pick<RepositoryOptions, "mailmap" | "odd">): Person {
  const plain: Person = { name: `Author ${number}`, emails: [`author-${number}@example.com`] };
  if (mailmap && number % 10 === 3) plain.emails.push(`author-${number}@old.example.net`);
  if (!odd || number % 7 !== 5) return plain;
  return { ...plain, ...ODD[Math.floor(number / 7) % ODD.length]!(number) };
}

/** In all the forms of .mailmap that join addresses. */
function mailmapOf(people: readonly Person[]): Binary {
  const moved = people.filter(({ emails: [, before] }) => before?.endsWith("@old.example.net"));
  const entries = moved.map(({ name, emails: [now, before] }, index) => {
    if (index % 3 === 0 || !name) return `<${now}> <${before}>\n`;
    return index % 3 === 1 ? `${name} <${now}> <${before!.toUpperCase()}>\n` : `${name} <${now}> ${name} <${before}>\n`;
  });
  return `# Who has moved.\n${entries.join("")}`;
}

function* blob(mark: number, content: Binary): Generator<Binary> {
  yield `blob\nmark :${mark}\ndata ${content.length}\n${content}\n`;
}

function* chunks(texts: Iterable<Binary>): Generator<Buffer> {
  let text = "";
  for (const one of texts) {
    text += one;
    if (text.length < CHUNK) continue;
    yield Buffer.from(text, "latin1");
    text = "";
  }
  yield Buffer.from(text, "latin1");
}

function binary(text: string): Binary {
  return Buffer.from(text, "utf8").toString("latin1");
}
