// Registered secrets do not reach what people read: the redactor by itself, and then every place a job can say something, searched in Postgres.
import { randomBytes } from "node:crypto";
import { inspect } from "node:util";
import { describe, expect, it } from "vitest";
import { InvalidInput } from "../../src/index.ts";
import { Fatal, type JobContext, Pause } from "../../src/worker/index.ts";
import { Redactor } from "../../src/worker/redact/redact.ts";
import { freshDatabase } from "../support/database/database.ts";
import { recordFigure } from "../support/figures.ts";
import { rig } from "../support/processes/in-process.ts";

const SECRET = "ghs_16C7e42F292c6912E7710c838347Ae178B4a";
const KEY_LINES = [
  "-----BEGIN PRIVATE KEY-----",
  "MIIEvQIBADANBgkqhkiG9w0BAQ",
  "4pHWq+TZ/5KQ9bd7sb1zAA==",
  "-----END PRIVATE KEY-----",
];
const KEY = KEY_LINES.join("\n");

function redactorOf(...secrets: unknown[]): Redactor {
  const redactor = new Redactor();
  for (const secret of secrets) redactor.add(secret);
  return redactor;
}

describe("a registered secret", () => {
  const base64 = (text: string) => Buffer.from(text).toString("base64");
  it.each([
    ["as it is", SECRET],
    ["in a URL", `https://x-access-token:${SECRET}@github.com/a/b.git`],
    ["percent-encoded", encodeURIComponent(SECRET)],
    ["in hex", Buffer.from(SECRET).toString("hex")],
    ["in base64", base64(SECRET)],
    ["in base64 after one character", base64(`u${SECRET}`)],
    ["in base64 after two characters", base64(`u:${SECRET}`)],
    ["in base64 among others", base64(`x-access-token:${SECRET}\n`)],
    ["in base64 for URLs", Buffer.from(`u:${SECRET}`).toString("base64url")],
    ["twice", `${SECRET} and ${SECRET}`],
  ])("is hidden %s", (_, text) => {
    const hidden = redactorOf(SECRET).hide(`before ${text} after`);
    expect(hidden).toMatch(/^before .*\*\*\*.* after$/s);
    // No run of it that would be of use to anybody is left.
    for (const form of [text, SECRET, Buffer.from(SECRET).toString("hex")])
      for (let from = 0; from + 12 <= form.length; from++)
        if (SECRET.includes(form.slice(from, from + 12)) || form === SECRET)
          expect(hidden).not.toContain(form.slice(from, from + 12));
  });

  it.each([
    ['quotes " and \\ backslashes', 'p"ss\\word"123'],
    ["characters that mean something in a pattern", "a.*b+c?(d)[e]{f}^$|"],
    ["characters of every script", "pässwörd 🐘 漢字"],
  ])("with %s is hidden as it is, in JSON and in a URL", (_, secret) => {
    const redactor = redactorOf(secret);
    expect(redactor.hide(`<${secret}>`)).toBe("<***>");
    expect(redactor.hide(JSON.stringify({ secret }))).toBe('{"secret":"***"}');
    expect(redactor.hide(`?q=${encodeURIComponent(secret)}&r`)).toBe("?q=***&r");
  });

  it("leaves other text alone", () => {
    expect(redactorOf(SECRET).hide("ghs_16C7 is how it begins")).toBe("ghs_16C7 is how it begins");
    expect(new Redactor().hide("nothing is registered")).toBe("nothing is registered");
  });

  it("of several, the longest is hidden first, so that none shows its end", () => {
    expect(redactorOf("password-one", "password-one-and-more").hide("password-one-and-more")).toBe("***");
  });

  it("of several lines is hidden line by line too, as a log shows it", () => {
    const redactor = redactorOf(KEY);
    expect(redactor.hide(`key:\n${KEY}`)).toBe("key:\n***");
    for (const line of KEY_LINES) expect(redactor.hide(`> ${line}`)).toBe("> ***");
    expect(redactorOf(KEY.replaceAll("\n", "\r\n")).hide(KEY_LINES[1]!)).toBe("***");
  });

  it("that is a structure has all its long leaves hidden, as an object and as JSON", () => {
    const account = { type: "service", project: "my-project-1", keys: [{ private_key: KEY, region: "eu" }] };
    for (const secret of [account, JSON.stringify(account), JSON.stringify(account, null, 2)]) {
      const redactor = redactorOf(secret);
      expect(redactor.hide("in my-project-1")).toBe("in ***");
      expect(redactor.hide(`${JSON.stringify(KEY)} in eu`)).toBe('"***" in eu');
      expect(redactor.hide(KEY_LINES[2]!)).toBe("***");
    }
  });

  it.each([
    ["an object without one", {}],
    ["an object of short values", { region: "eu", port: 5432 }],
    ["an empty array", []],
  ])("that is %s hides nothing and spoils nothing", (_, secret) => {
    expect(redactorOf(secret).hide("an ordinary sentence")).toBe("an ordinary sentence");
  });

  it("S35: that a limit has cut shows neither its beginning nor its end", () => {
    const redactor = redactorOf(SECRET);
    for (let left = 8; left < SECRET.length; left++) {
      expect(redactor.hide(`to ${SECRET.slice(0, left)}… (12 more)`)).toBe("to ***… (12 more)");
      expect(redactor.hide(`(12 before) …${SECRET.slice(-left)} and on`)).toBe("(12 before) …*** and on");
    }
  });

  it("S35: over two lines, two writes or two chunks shows at most a third of itself, and under 16 characters", () => {
    const forms = [SECRET, Buffer.from(SECRET).toString("hex"), base64(SECRET).replace(/.=*$/, "")];
    const redactor = redactorOf(SECRET);
    for (const form of forms) {
      for (let at = 1; at < form.length; at++) {
        const parts = [form.slice(0, at), form.slice(at)];
        const apart = parts.map((part, place) => redactor.hide(place === 0 ? `a ${part}` : `${part} b`));
        const together = redactor.hide(`a ${parts.join("\n")} b`).split("\n");
        const indented = redactor.hide(`a ${parts.join("\r\n")}  `).split("\r\n");
        for (const shown of [...apart, ...together, ...indented])
          for (let from = 0; from + 16 <= form.length; from++) expect(shown).not.toContain(form.slice(from, from + 16));
      }
    }
  });

  it("S35: wrapped, as base64 wraps it, is hidden line by line", () => {
    const long = `${SECRET}/${SECRET.toLowerCase()}/${SECRET.toUpperCase()}`;
    const wrapped = Buffer.from(long).toString("base64").replaceAll(/.{40}/g, "$&\n");
    expect(redactorOf(long).hide(`key:\n${wrapped}\ndone`)).toMatch(/^key:\n(\*{3}\n){4,}.{0,7}\ndone$/);
  });

  it("is hidden as console.log shows it within an object", () => {
    const secret = 'p"ss\\word/4711';
    expect(redactorOf(secret).hide(inspect({ secret }))).toBe("{ secret: '***' }");
    expect(redactorOf(secret).hide(JSON.stringify(JSON.stringify({ secret })))).not.toContain("ss");
  });

  it("lets a line end with a word that it begins with", () => {
    const redactor = redactorOf("postgres://app:hunter2hunter2@db.example.com/app");
    expect(redactor.hide("connected to postgres")).toBe("connected to postgres");
  });

  it("is hidden in lists, keys and numbers of a structure, which stays what it is", () => {
    const redactor = redactorOf(SECRET, { pin: 1234567890 });
    expect(redactor.hideIn({ [SECRET]: [SECRET, 1, null, 1234567890], ok: true })).toEqual({
      "***": ["***", 1, null, "***"],
      ok: true,
    });
  });

  it("that nobody chose for it, and that is too short, is passed over", () => {
    const redactor = new Redactor();
    for (const value of ["short", 5, null, undefined, true, { a: "b" }]) redactor.register(value);
    expect(redactor.hides).toBe(false);
    redactor.register({ deep: ["long enough"] });
    expect(redactor.hide("it is long enough")).toBe("it is ***");
  });

  it("may be as long as an input, or thousands of them", () => {
    const long = randomBytes(100_000).toString("hex");
    const many = Array.from({ length: 3000 }, () => randomBytes(12).toString("hex"));
    const redactor = redactorOf(long, many);
    expect(redactor.hide(`all of it: ${long}`)).toBe("all of it: ***");
    expect(redactor.hide(`a part: ${long.slice(0, 9000)}`)).toBe("a part: ***");
    for (const one of many) expect(redactor.hide(`<${one}> ${encodeURIComponent(one)}`)).toBe("<***> ***");
  });

  it("costs a line little: a figure", () => {
    const redactor = redactorOf(SECRET, KEY.repeat(20));
    const lines = Array.from({ length: 20_000 }, (_, n) => `line ${n} of an ordinary log, about as long as they are`);
    redactor.hide("warm");
    const began = performance.now();
    for (const line of lines) redactor.hide(line);
    const each = ((performance.now() - began) / lines.length) * 1000;
    recordFigure("hiding the secrets of a job in a line", Math.round(each * 10) / 10, "µs", "a token and a key file");
    expect(each).toBeLessThan(2000);
  });

  it.each([
    [
      "of 7 characters",
      "1234567",
      /A secret of 7 characters would hide ordinary words\. Register secrets of at least 8/,
    ],
    ["that is empty", "", /A secret of 0 characters/],
    ["that is a number", 12345678, /A number cannot be a secret\. Pass a text or an object/],
    ["that is missing", undefined, /A undefined cannot be a secret/],
    ["that is null", null, /cannot be a secret/],
  ])("%s is refused", (_, secret, message) => {
    expect(() => redactorOf(secret)).toThrow(InvalidInput);
    expect(() => redactorOf(secret)).toThrow(message);
  });
});

describe("a job that has registered a secret", async () => {
  const database = await freshDatabase();
  const { run, query } = rig(database);

  /** Every row of the schema's tables in which the secret stands, in whatever form. */
  async function places(secret: string): Promise<string[]> {
    const tables = await query<{ name: string }>(
      "select oid::regclass::text as name from pg_class where relnamespace = 'stillwake'::regnamespace and relkind in ('r', 'p') and not relispartition",
    );
    const bytes = Buffer.from(secret);
    const forms = [...secret.split("\n"), bytes.toString("hex"), bytes.toString("base64").slice(0, -4)];
    const parts = tables.map(({ name }) => `select '${name}: ' || t::text as place from ${name} t`);
    const rows = await query<{ place: string }>(
      `select place from (${parts.join(" union all ")}) p where exists (select from unnest($1::text[]) f where position(f in place) > 0)`,
      [forms],
    );
    return rows.map(({ place }) => place);
  }

  const ways: [string, (job: JobContext, secret: string) => unknown][] = [
    ["log lines", (job, secret) => job.log.info(`token ${secret}`)],
    [
      "the data of log lines",
      (job, secret) => job.log.warn("see", { url: `https://${secret}@host`, deep: [{ [secret]: secret }] }),
    ],
    ["progress", (job, secret) => job.progress(0.5, `with ${secret}`)],
    [
      "the messages of steps",
      (job, secret) => job.step("s", { start: `a ${secret}`, end: () => `b ${secret}` }, () => 1),
    ],
    ["the warning of an optional step", (job, secret) => job.optional("o", () => Promise.reject(new Error(secret)))],
    [
      "the warning of a try within a step",
      (job, secret) =>
        job.optional("o", { retry: { attempts: 2, initial: "1ms" } }, () => Promise.reject(new Error(secret))),
    ],
    [
      "failures: message, stack, code and cause",
      (_, secret) => {
        const cause = new Error(`deeper ${secret}`, { cause: `deepest ${secret}` });
        throw new Fatal(`with ${secret}`, { code: secret, cause });
      },
    ],
    [
      "failures in base64",
      (_, secret) => {
        throw new Fatal(`Authorization: Basic ${Buffer.from(secret).toString("base64")}`);
      },
    ],
    [
      "the reason of a pause",
      (_, secret) => {
        throw new Pause(`401 for ${secret}`);
      },
    ],
    [
      "the output of a command",
      (job, secret) => job.exec("printf", ["%s\n", secret, Buffer.from(secret).toString("hex")]),
    ],
    ["the error of a command", (job, secret) => job.exec("sh", ["-c", 'echo "$0" >&2; exit 3', secret])],
  ];

  const secrets = { token: SECRET, key: KEY };
  let hits = 0;
  it.each(
    ways.flatMap(([what, way]) => Object.entries(secrets).map(([kind, secret]) => ({ what, way, kind, secret }))),
  )("shows its $kind nowhere in $what", async ({ way, secret }) => {
    const { job } = await run(
      async (context) => {
        context.secret(secret);
        context.log.info("beside it, ordinary words stay");
        await way(context, secret);
      },
      { pipeline: { retry: { attempts: 1 } }, until: ({ state }) => state !== "queued" && state !== "running" },
    );
    expect(["completed", "failed", "paused"]).toContain(job.state);
    const found = await places(secret);
    hits += found.length;
    expect(found).toEqual([]);
    expect((await places("ordinary words")).length).toBeGreaterThan(0);
  });

  it("shows one that was not registered, so that the search above can find something", async () => {
    await run((job) => job.log.info("token canary-4711-unregistered"));
    expect(await places("canary-4711-unregistered")).toHaveLength(1);
    recordFigure(
      "places in Postgres where a registered secret was found",
      hits,
      "",
      `${ways.length} ways to say it × 2 secrets`,
    );
  });
});
