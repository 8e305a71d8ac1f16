// Redaction of registered secrets: the redactor alone, and everything a job can write, searched in Postgres.
import { randomBytes } from "node:crypto";
import { inspect } from "node:util";
import { describe, expect, it } from "vitest";
import { InvalidInput } from "../../src/index.ts";
import { Fatal, type JobContext, Pause } from "../../src/worker/index.ts";
import { Redactor } from "../../src/worker/redact/redact.ts";
import { recordFigure } from "../support/figures.ts";
import { inProcessFixture } from "../support/processes/in-process.ts";

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
    const hidden = redactorOf(SECRET).redact(`before ${text} after`);
    expect(hidden).toMatch(/^before .*\*\*\*.* after$/s);
    // No useful part of it is left.
    for (const form of [text, SECRET, Buffer.from(SECRET).toString("hex")])
      for (let from = 0; from + 12 <= form.length; from++)
        if (SECRET.includes(form.slice(from, from + 12)) || form === SECRET)
          expect(hidden).not.toContain(form.slice(from, from + 12));
  });

  it.each([
    ['quotes " and \\ backslashes', 'p"ss\\word"123'],
    ["characters with a meaning in regular expressions", "a.*b+c?(d)[e]{f}^$|"],
    ["characters of every script", "pässwörd 🐘 漢字"],
  ])("with %s is hidden as it is, in JSON and in a URL", (_, secret) => {
    const redactor = redactorOf(secret);
    expect(redactor.redact(`<${secret}>`)).toBe("<***>");
    expect(redactor.redact(JSON.stringify({ secret }))).toBe('{"secret":"***"}');
    expect(redactor.redact(`?q=${encodeURIComponent(secret)}&r`)).toBe("?q=***&r");
  });

  it("does not change other text", () => {
    expect(redactorOf(SECRET).redact("ghs_16C7 is how it begins")).toBe("ghs_16C7 is how it begins");
    expect(new Redactor().redact("nothing is registered")).toBe("nothing is registered");
  });

  it("of several, the longest is redacted first, so that no end is visible", () => {
    expect(redactorOf("password-one", "password-one-and-more").redact("password-one-and-more")).toBe("***");
  });

  it("with several lines is redacted line by line too", () => {
    const redactor = redactorOf(KEY);
    expect(redactor.redact(`key:\n${KEY}`)).toBe("key:\n***");
    for (const line of KEY_LINES) expect(redactor.redact(`> ${line}`)).toBe("> ***");
    expect(redactorOf(KEY.replaceAll("\n", "\r\n")).redact(KEY_LINES[1]!)).toBe("***");
  });

  it("that is an object has all its long leaves redacted, as an object and as JSON", () => {
    const account = { type: "service", project: "my-project-1", keys: [{ private_key: KEY, region: "eu" }] };
    for (const secret of [account, JSON.stringify(account), JSON.stringify(account, null, 2)]) {
      const redactor = redactorOf(secret);
      expect(redactor.redact("in my-project-1")).toBe("in ***");
      expect(redactor.redact(`${JSON.stringify(KEY)} in eu`)).toBe('"***" in eu');
      expect(redactor.redact(KEY_LINES[2]!)).toBe("***");
    }
  });

  it.each([
    ["an object without one", {}],
    ["an object of short values", { region: "eu", port: 5432 }],
    ["an empty array", []],
  ])("that is %s hides nothing and spoils nothing", (_, secret) => {
    expect(redactorOf(secret).redact("an ordinary sentence")).toBe("an ordinary sentence");
  });

  it("that was truncated shows neither its beginning nor its end", () => {
    const redactor = redactorOf(SECRET);
    for (let left = 8; left < SECRET.length; left++) {
      expect(redactor.redact(`to ${SECRET.slice(0, left)}… (12 more)`)).toBe("to ***… (12 more)");
      expect(redactor.redact(`(12 before) …${SECRET.slice(-left)} and on`)).toBe("(12 before) …*** and on");
    }
  });

  it("over two lines, writes or chunks shows less than a third of itself, and less than 16 characters", () => {
    const forms = [SECRET, Buffer.from(SECRET).toString("hex"), base64(SECRET).replace(/.=*$/, "")];
    const redactor = redactorOf(SECRET);
    for (const form of forms) {
      for (let at = 1; at < form.length; at++) {
        const parts = [form.slice(0, at), form.slice(at)];
        const apart = parts.map((part, place) => redactor.redact(place === 0 ? `a ${part}` : `${part} b`));
        const together = redactor.redact(`a ${parts.join("\n")} b`).split("\n");
        const indented = redactor.redact(`a ${parts.join("\r\n")}  `).split("\r\n");
        for (const shown of [...apart, ...together, ...indented])
          for (let from = 0; from + 16 <= form.length; from++) expect(shown).not.toContain(form.slice(from, from + 16));
      }
    }
  });

  it("in wrapped base64 is redacted line by line", () => {
    const long = `${SECRET}/${SECRET.toLowerCase()}/${SECRET.toUpperCase()}`;
    const wrapped = Buffer.from(long).toString("base64").replaceAll(/.{40}/g, "$&\n");
    expect(redactorOf(long).redact(`key:\n${wrapped}\ndone`)).toMatch(/^key:\n(\*{3}\n){4,}.{0,7}\ndone$/);
  });

  it("is redacted as console.log prints it in an object", () => {
    const secret = 'p"ss\\word/4711';
    expect(redactorOf(secret).redact(inspect({ secret }))).toBe("{ secret: '***' }");
    expect(redactorOf(secret).redact(JSON.stringify(JSON.stringify({ secret })))).not.toContain("ss");
  });

  it("does not redact a line that ends with its first word", () => {
    const redactor = redactorOf("postgres://app:hunter2hunter2@db.example.com/app");
    expect(redactor.redact("connected to postgres")).toBe("connected to postgres");
  });

  it("is redacted in arrays, keys and numbers of a structure", () => {
    const redactor = redactorOf(SECRET, { pin: 1234567890 });
    expect(redactor.redactValue({ [SECRET]: [SECRET, 1, null, 1234567890], ok: true })).toEqual({
      "***": ["***", 1, null, "***"],
      ok: true,
    });
  });

  it("of an input that is too short is ignored", () => {
    const redactor = new Redactor();
    for (const value of ["short", 5, null, undefined, true, { a: "b" }]) redactor.register(value);
    expect(redactor.hasSecrets).toBe(false);
    redactor.register({ deep: ["long enough"] });
    expect(redactor.redact("it is long enough")).toBe("it is ***");
  });

  it("may be as long as an input, and there may be thousands", () => {
    const long = randomBytes(100_000).toString("hex");
    const many = Array.from({ length: 3000 }, () => randomBytes(12).toString("hex"));
    const redactor = redactorOf(long, many);
    expect(redactor.redact(`all of it: ${long}`)).toBe("all of it: ***");
    expect(redactor.redact(`a part: ${long.slice(0, 9000)}`)).toBe("a part: ***");
    for (const one of many) expect(redactor.redact(`<${one}> ${encodeURIComponent(one)}`)).toBe("<***> ***");
  });

  it("costs little time per line", () => {
    const redactor = redactorOf(SECRET, KEY.repeat(20));
    const lines = Array.from({ length: 20_000 }, (_, n) => `line ${n} of an ordinary log, about as long as they are`);
    redactor.redact("warm");
    const began = performance.now();
    for (const line of lines) redactor.redact(line);
    const each = ((performance.now() - began) / lines.length) * 1000;
    recordFigure("hiding the secrets of a job in a line", Math.round(each * 10) / 10, "µs", "a token and a key file");
    expect(each).toBeLessThan(2000);
  });

  it.each([
    [
      "of 7 characters",
      "1234567",
      /A secret of 7 characters is too short: redacting it would mask ordinary words\. Register secrets of at least 8/,
    ],
    ["that is empty", "", /A secret of 0 characters/],
    ["that is a number", 12345678, /A secret must be a string or an object, not number\. Pass a string or an object/],
    ["that is missing", undefined, /must be a string or an object, not undefined/],
    ["that is null", null, /must be a string or an object/],
  ])("%s is rejected", (_, secret, message) => {
    expect(() => redactorOf(secret)).toThrow(InvalidInput);
    expect(() => redactorOf(secret)).toThrow(message);
  });
});

describe("a job that has registered a secret", async () => {
  const { run, query } = await inProcessFixture();

  /** All rows of the schema that contain the secret in any form. */
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
      (job, secret) => job.log.warning("see", { url: `https://${secret}@host`, deep: [{ [secret]: secret }] }),
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
      { pipeline: { retry: { attempts: 1 } }, until: ({ state }) => state !== "queued" && state !== "running" },
      async (context) => {
        context.secret(secret);
        context.log.info("beside it, ordinary words stay");
        await way(context, secret);
      },
    );
    expect(["completed", "failed", "paused"]).toContain(job.state);
    const found = await places(secret);
    hits += found.length;
    expect(found).toEqual([]);
    expect((await places("ordinary words")).length).toBeGreaterThan(0);
  });

  it("control: the search finds a secret that was not registered", async () => {
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
