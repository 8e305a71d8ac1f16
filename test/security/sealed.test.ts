// S35–S37: parts of an input that only workers can read. Sealed where they are enqueued, opened where they run, bound to where they stand, and
// refused in the plain by the database, whoever asks.
import { randomBytes } from "node:crypto";
import { describe, expect, it, onTestFinished } from "vitest";
import { z } from "zod";
import {
  breaker,
  createStillwake,
  InvalidInput,
  newSealKey,
  pipeline,
  schedule,
  seal,
  secret,
} from "../../src/index.ts";
import { readSealKeys } from "../../src/secrets/seal.ts";
import { runJob, travel, waitFor } from "../../src/testing/index.ts";
import { implement, type WorkerOptions } from "../../src/worker/index.ts";
import { freshDatabase } from "../support/database/database.ts";
import { recordFigure } from "../support/figures.ts";
import { rig } from "../support/processes/in-process.ts";

const database = await freshDatabase();
const { query, start, until, logs, name } = rig(database);
const k1 = newSealKey();
const k2 = newSealKey();
const keys = { sealKeys: `k1:${k1}` };
const TOKEN = `tok_${randomBytes(20).toString("hex")}`;

function client(sealKeys?: string) {
  const stillwake = createStillwake({ url: database.url, ...(sealKeys && { sealKeys }) });
  onTestFinished(() => stillwake.close());
  return stillwake;
}

async function stored(id: string): Promise<Record<string, unknown>> {
  const [row] = await query<{ input: Record<string, unknown> }>("select input from stillwake.jobs where id = $1", [id]);
  return row!.input;
}

/** One job of a pipeline with these paths sealed, seen to its end by a worker with these options. */
async function run(input: Record<string, unknown>, sealed: string[], options: Partial<WorkerOptions> = keys) {
  const contract = pipeline(name(), { sealed, retry: { attempts: 2, initial: "1ms" } });
  const seen: unknown[] = [];
  const { id } = await client(keys.sealKeys).enqueue(contract, input);
  await start([implement(contract, (_, given) => void seen.push(given))], options);
  return { id, seen, kept: await stored(id), job: await until(id) };
}

describe("a sealed part of an input", () => {
  it("S37: is stored sealed, and the code sees what was enqueued", async () => {
    const input = {
      repo: "acme/app",
      token: TOKEN,
      auth: { user: "ann", password: `pw-${TOKEN}` },
      accounts: [{ token: `a-${TOKEN}` }, { name: "none" }, { token: null }, { token: `b-${TOKEN}` }],
      pin: 12_345_678,
      flags: { beta: true },
      missing: null,
    };
    const sealed = ["token", "auth.password", "accounts.*.token", "pin", "flags", "missing", "absent.at.all"];
    const { seen, kept, job } = await run(input, sealed);
    expect(job.state).toBe("completed");
    expect(seen).toEqual([input]);
    const mark = { $sealed: expect.stringMatching(/^j\.k1\.[\w-]{16}\.[\w-]{22,}$/) };
    expect(kept).toEqual({
      repo: "acme/app",
      token: mark,
      auth: { user: "ann", password: mark },
      accounts: [{ token: mark }, { name: "none" }, { token: null }, { token: mark }],
      pin: mark,
      flags: mark,
      missing: null,
    });
  });

  it("is checked by the schema before it is sealed, and sealed as the schema leaves it", async () => {
    const contract = pipeline(name(), {
      input: z.object({ token: z.string().trim().min(10), depth: z.number().default(3) }),
      sealed: ["token"],
    });
    const seen: unknown[] = [];
    const code = implement(contract, (_, input) => void seen.push(input));
    const { job } = await runJob(code, { token: `  ${TOKEN} ` } as never, { url: database.url, worker: keys });
    expect(job.state).toBe("completed");
    expect(seen).toEqual([{ token: TOKEN, depth: 3 }]);
    await expect(client(keys.sealKeys).enqueue(contract, { token: "short" })).rejects.toMatchObject({
      code: "INVALID_INPUT",
      field: "input.token",
    });
  });

  it("S37: opens in its own job, tenant and field, and nowhere else", async () => {
    const tenant = (input: { of: string }) => input.of;
    const contract = pipeline(name(), { sealed: ["one", "two"], tenant, retry: { attempts: 1 } });
    const stillwake = client(keys.sealKeys);
    const { id } = await stillwake.enqueue(contract, { of: "a", one: TOKEN, two: "hello" } as never);
    const { one } = await stored(id);
    // Somebody who can write to the table, or to the API, moves what he cannot read.
    const copied = await stillwake.enqueue(contract, { of: "a", one, two: "mine" } as never);
    const swapped = await stillwake.enqueue(contract, { of: "a", one: "x", two: "y" } as never);
    const fields = "jsonb_build_object('of', 'a', 'one', input -> 'two', 'two', input -> 'one')";
    await query(`update stillwake.live_jobs set input = ${fields} where id = $1`, [swapped.id]);
    const moved = await stillwake.enqueue(contract, { of: "b", one: TOKEN } as never);
    await query("update stillwake.live_jobs set tenant = 'c' where id = $1", [moved.id]);
    const flipped = await stillwake.enqueue(contract, { of: "a", one: TOKEN } as never);
    await query(
      "update stillwake.live_jobs set input = jsonb_set(input, '{one,$sealed}', to_jsonb(regexp_replace(input #>> '{one,$sealed}', '.$', 'A')  || 'A')) where id = $1",
      [flipped.id],
    );
    const ran: string[] = [];
    await start([implement(contract, ({ id: own }) => void ran.push(own))], keys);
    expect((await until(id)).state).toBe("completed");
    for (const other of [copied, swapped, moved, flipped]) {
      const { state, failure, attempt } = await until(other.id);
      expect({ state, attempt }).toEqual({ state: "failed", attempt: 1 });
      expect(failure).toMatchObject({
        code: "SEALED",
        message: expect.stringMatching(/^input\.one does not open with key "k1"/),
      });
    }
    expect(ran).toEqual([id]);
  });

  it("S37: rotation: the new key seals, the old one still opens; without it the job says which is missing", async () => {
    const contract = pipeline<{ token: string }>(name(), { sealed: ["token"], retry: { attempts: 3 } });
    const old = await client(keys.sealKeys).enqueue(contract, { token: TOKEN });
    const kept = await client(keys.sealKeys).enqueue(contract, { token: TOKEN }, { delay: "1h" });
    const rotated = `k2:${k2},k1:${k1}`;
    const fresh = await client(rotated).enqueue(contract, { token: `new ${TOKEN}` });
    expect((await stored(fresh.id)).token).toEqual({ $sealed: expect.stringMatching(/^j\.k2\./) });
    const seen: unknown[] = [];
    const code = implement(contract, (_, { token }) => void seen.push(token));
    const { worker } = await start([code], { sealKeys: rotated });
    await until(old.id);
    await until(fresh.id);
    expect(seen.sort()).toEqual([`new ${TOKEN}`, TOKEN].sort());
    await worker.stop();

    await travel(database.url, "1h");
    const { worker: without } = await start([code], { sealKeys: `k2:${k2}` });
    const { state, attempt, failure } = await until(kept.id);
    expect({ state, attempt, code: failure?.code }).toEqual({ state: "failed", attempt: 1, code: "SEALED" });
    expect(failure?.message).toBe(
      'input.token is sealed with key "k1", which this worker does not have (it has k2). Give the worker key "k1" among its sealKeys (STILLWAKE_SEAL_KEYS) and retry the job',
    );
    expect((await logs(kept.id)).map(({ level, message }) => ({ level, message }))).toEqual([
      { level: "error", message: failure!.message },
    ]);
    await without.stop();
    // The remedy is one.
    await start([code], { sealKeys: rotated });
    await client().retry(kept.id);
    expect((await until(kept.id)).state).toBe("completed");
  });

  it("is sealed for children by the keeper, and for each of many jobs by itself", async () => {
    const child = pipeline<{ n: number; token: string }>(name(), { sealed: ["token"] });
    const parent = pipeline<{ token: string }>(name(), { sealed: ["token"] });
    const code = implement(parent, async (job, { token }) => {
      const kids = await job.spawn(
        child,
        [1, 2].map((n) => ({ n, token: `${token}-${n}` })),
      );
      return (await kids.done()).length;
    });
    const seen: string[] = [];
    const childCode = implement(child, (_, { token }) => {
      seen.push(token);
      return "done";
    });
    const jobs = await client(keys.sealKeys).enqueueMany(parent, [{ token: TOKEN }, { token: TOKEN }]);
    await start([code, childCode], keys);
    for (const { id } of jobs) expect((await until(id)).output).toBe(2);
    expect(seen.sort()).toEqual([`${TOKEN}-1`, `${TOKEN}-1`, `${TOKEN}-2`, `${TOKEN}-2`]);
    const rows = await query<{ text: string }>(
      "select input ->> 'token' as text from stillwake.jobs where pipeline in ($1, $2)",
      [parent.name, child.name],
    );
    expect(rows).toHaveLength(6);
    for (const { text } of rows) expect(text).toMatch(/^\{"\$sealed": "j\.k1\./);
    expect(new Set(rows.map(({ text }) => text)).size).toBe(6);
  });

  it("of a schedule is bound to the pipeline, and the same schedule again has not changed", async () => {
    const contract = pipeline(name(), { sealed: ["token"] });
    const nightly = schedule(contract.name, { cron: "* * * * *", pipeline: contract, input: { token: TOKEN } });
    const stillwake = client(keys.sealKeys);
    await expect(client().schedules.set(nightly)).rejects.toMatchObject({ field: "input.token" });
    expect(await stillwake.schedules.set(nightly)).toBe(true);
    expect(await stillwake.schedules.set(nightly)).toBe(false);
    const changed = { ...nightly, options: { ...nightly.options, input: { token: `${TOKEN}!` } } };
    expect(await stillwake.schedules.set(changed)).toBe(true);
    const state = (await stillwake.schedules.list()).find((one) => one.name === contract.name)!;
    expect(state.input).toEqual({ token: { $sealed: expect.stringMatching(/^p\.k1\./) } });
    await travel(database.url, "61s");
    const seen: unknown[] = [];
    await start([implement(contract, (_, input) => void seen.push(input))], keys);
    await stillwake.watchdog();
    // The worker may be at it itself.
    const [job] = await waitFor(
      async () => {
        const { jobs } = await stillwake.list({ pipeline: contract.name });
        return jobs.length > 0 && jobs;
      },
      { what: "the job of the slot" },
    );
    expect((await until(job!.id)).state).toBe("completed");
    expect(seen[0]).toEqual({ token: `${TOKEN}!` });
    await stillwake.schedules.remove(contract.name);
  });

  it("can be sealed where the keys are and enqueued where they are not, for its tenant alone", async () => {
    const contract = pipeline(name(), { sealed: ["token"], retry: { attempts: 1 } });
    await client().register(contract);
    const input = seal(contract, { n: 1, token: TOKEN }, { ...keys, tenant: "acme" });
    expect(input).toEqual({ n: 1, token: { $sealed: expect.stringMatching(/^p\.k1\./) } });
    const right = await client().enqueue(contract.name, input, { tenant: "acme" });
    const wrong = await client().enqueue(contract.name, input, { tenant: "other" });
    const seen: unknown[] = [];
    await start([implement(contract, (_, given) => void seen.push(given))], keys);
    expect((await until(right.id)).state).toBe("completed");
    expect((await until(wrong.id)).failure?.code).toBe("SEALED");
    expect(seen).toEqual([{ n: 1, token: TOKEN }]);
  });

  it("goes with its job when that is pruned: nothing of it is left", async () => {
    const { id, kept, job } = await run({ token: TOKEN }, ["token"]);
    expect(job.state).toBe("completed");
    const { $sealed } = kept.token as { $sealed: string };
    expect(await places($sealed)).toHaveLength(1);
    await travel(database.url, "40d");
    await client().watchdog();
    await expect(client().get(id)).rejects.toMatchObject({ code: "JOB_NOT_FOUND" });
    expect(await places($sealed)).toEqual([]);
  });
});

describe("a plain value at a sealed path is refused", () => {
  const contract = pipeline("guarded", { sealed: ["token", "auth.password", "accounts.*.token"] });

  it("by the client that has no key, with the remedy; nothing is stored", async () => {
    const refused = client().enqueue(contract, { token: TOKEN });
    await expect(refused).rejects.toThrow(InvalidInput);
    await expect(refused).rejects.toMatchObject({ field: "input.token", remedy: expect.stringMatching(/sealKeys/) });
    await expect(client().enqueueMany(contract, [{}, { token: TOKEN }])).rejects.toMatchObject({
      field: "input.token",
    });
    await expect(refused).rejects.not.toThrow(TOKEN);
    expect(await query("select from stillwake.jobs where pipeline = 'guarded'")).toEqual([]);
  });

  it.each([
    ["a text", { token: "plain" }, "token"],
    ["deeper", { auth: { password: 1 } }, "auth.password"],
    ["in a list", { accounts: [{ token: { $secret: "ok" } }, { token: "plain" }] }, "accounts.*.token"],
    ["that only looks sealed", { token: { $sealed: "my password" } }, "token"],
    ["beside a reference", { token: { $secret: "ok", more: "plain" } }, "token"],
  ])("by the database, from whoever calls it: %s", async (_, input, path) => {
    await client().register(contract);
    for (const statement of [
      "select stillwake.enqueue('guarded', $1)",
      "select stillwake.enqueue_many('guarded', jsonb_build_array('{}'::jsonb, $1::jsonb))",
    ]) {
      const detail = expect.stringContaining(`.${path}`);
      await expect(query(statement, [input])).rejects.toMatchObject({ code: "SW001", detail });
    }
    const byName = client().enqueue("guarded", input);
    await expect(byName).rejects.toMatchObject({ code: "INVALID_INPUT", field: `inputs[0].${path}` });
  });

  it("where nothing stands, or null, or a reference, or what is sealed, nothing is refused", async () => {
    await client().register(contract);
    for (const input of [{}, { token: null }, { auth: "text" }, { accounts: {} }, { token: { $secret: "a" } }, 1, "x"])
      await query("select stillwake.enqueue('guarded', $1::jsonb, '{\"delay\":\"1h\"}')", [JSON.stringify(input)]);
    const { id } = await client(keys.sealKeys).enqueue(contract, { token: TOKEN }, { delay: "1h" });
    await client().enqueue("guarded", await stored(id), { delay: "1h" });
  });

  it("a pipeline that seals nothing any more takes it again", async () => {
    const paths = (sealed: string[]) => query("select stillwake.register_pipeline('loose', $1)", [{ sealed }]);
    await paths(["token"]);
    await expect(client().enqueue("loose", { token: 1 })).rejects.toMatchObject({ code: "INVALID_INPUT" });
    await client().register(pipeline("loose"));
    await client().enqueue("loose", { token: 1 }, { delay: "1h" });
    await expect(paths(["a..b"])).rejects.toMatchObject({ code: "SW001", detail: "sealed" });
  });

  it("a key or tenant that would carry it is refused, and does not say it", async () => {
    const telling = pipeline(name(), { sealed: ["token"], key: (input: { token: string }) => `user:${input.token}` });
    const refused = client(keys.sealKeys).enqueue(telling, { token: TOKEN });
    await expect(refused).rejects.toThrow(/carries what is sealed at input\.token/);
    await expect(refused).rejects.not.toThrow(TOKEN);
    const plain = pipeline(name(), { sealed: ["token"] });
    const idempotencyKey = TOKEN;
    await expect(client(keys.sealKeys).enqueue(plain, { token: TOKEN }, { idempotencyKey })).rejects.toThrow(/carries/);
  });
});

describe("a reference to a secret", () => {
  const env = { PATH: process.env.PATH, STILLWAKE_SECRET_GITHUB_TOKEN: TOKEN };

  it("S36: is stored as a name; the worker finds the value in its environment", async () => {
    const { seen, kept, job } = await run({ token: secret("github-token") }, ["token"], { env });
    expect(job.state).toBe("completed");
    expect(kept).toEqual({ token: { $secret: "github-token" } });
    expect(seen).toEqual([{ token: TOKEN }]);
  });

  it("passes the schema of the value it stands for, and needs no key", async () => {
    const contract = pipeline(name(), {
      input: z.object({ token: z.string().min(20), all: z.array(z.object({ key: z.string() })).default([]) }),
      sealed: ["token", "all.*.key"],
    });
    const input = { token: secret("github_token"), all: [{ key: secret("github_token") }] };
    const seen: unknown[] = [];
    const code = implement(contract, (_, given) => void seen.push(given));
    const { job } = await runJob(code, input, { url: database.url, worker: { env } });
    expect(job.state).toBe("completed");
    expect(seen).toEqual([{ token: TOKEN, all: [{ key: TOKEN }] }]);
    const strict = pipeline(name(), { input: z.object({ token: z.string().startsWith("tok_") }), sealed: ["token"] });
    await expect(client().enqueue(strict, input)).rejects.toMatchObject({ field: "input.token" });
    const moving = pipeline(name(), {
      input: z.object({ token: z.string() }).transform(({ token }) => ({ moved: token })),
      sealed: ["token"],
    });
    await expect(client().enqueue(moving, { token: secret("x") })).rejects.toThrow(/schema changes or moves/);
  });

  it("is looked up by the worker's own function, for the job it is for, each name once", async () => {
    const asked: unknown[] = [];
    const secrets = async (wanted: string, use: unknown) => {
      asked.push([wanted, use]);
      return { user: "ann", token: TOKEN };
    };
    const input = { a: secret("login"), b: secret("login") };
    const { id, seen, job } = await run(input, ["a", "b"], { secrets });
    expect(seen).toEqual([{ a: { user: "ann", token: TOKEN }, b: { user: "ann", token: TOKEN } }]);
    expect(asked).toEqual([["login", { job: id, pipeline: job.pipeline, tenant: null }]]);
  });

  it("that nobody knows ends the job at once; a keeper of secrets that is away is asked again", async () => {
    const unknown = await run({ token: secret("nobody") }, ["token"], { env });
    expect(unknown.job).toMatchObject({ state: "failed", attempt: 1, failure: { code: "SECRET_UNKNOWN" } });
    expect(unknown.job.failure?.message).toMatch(/^Secret "nobody" is not known .*STILLWAKE_SECRET_<NAME>/);
    let calls = 0;
    const secrets = () => {
      calls += 1;
      if (calls === 1) throw Object.assign(new Error(`refused ${TOKEN}`), { code: "ECONNREFUSED" });
      return TOKEN;
    };
    const { id, job } = await run({ token: secret("away") }, ["token"], { secrets });
    expect(job).toMatchObject({ state: "completed", attempt: 2 });
    const lines = await logs(id);
    expect(lines[0]).toMatchObject({
      message: expect.stringContaining('"away" could not be looked up (ECONNREFUSED)'),
    });
    expect(await places(TOKEN)).toEqual([]);
  });

  it("anywhere but at a sealed path is data like any other", async () => {
    const input = { token: "x", note: { $secret: "github_token" }, deep: [{ $sealed: "j.k1.x.y" }] };
    const { seen } = await run(input, [], { env });
    expect(seen).toEqual([input]);
  });

  it("whose lookup hangs does not keep the worker from stopping", async () => {
    const contract = pipeline(name(), { sealed: ["token"] });
    const { id } = await client().enqueue(contract, { token: secret("slow") });
    let asked = () => {};
    const begun = new Promise<void>((resolve) => {
      asked = resolve;
    });
    const secrets = () => {
      asked();
      return new Promise(() => {});
    };
    const { worker } = await start([implement(contract, () => {})], { secrets });
    await begun;
    await worker.stop();
    expect((await client().get(id)).state).toBe("queued");
  });

  it.each([["1st"], [""], ["a b"], [5 as never]])("cannot be called %j", (wrong) => {
    expect(() => secret(wrong)).toThrow(/cannot name a secret/);
  });
});

describe("what was sealed or looked up", () => {
  it("S35: shows nowhere, though the code says it in every way; values under 8 characters cannot be hidden", async () => {
    const contract = pipeline<{ token: string; pin: string; deep: { key: string } }>(name(), {
      sealed: ["token", "pin", "deep"],
      retry: { attempts: 1 },
    });
    const deep = { key: `deep-${TOKEN}` };
    const shaky = breaker("shaky");
    const { id } = await client(keys.sealKeys).enqueue(contract, { token: secret("t"), pin: "1234", deep });
    const code = implement(contract, async (job, input) => {
      job.log.info(`${input.token} ${input.pin}`, {
        [input.deep.key]: Buffer.from(input.deep.key).toString("base64"),
      });
      job.progress(0.5, `half of ${input.token}`);
      await job.optional("o", () => Promise.reject(new Error(input.token, { cause: input.deep.key })));
      await shaky.call(job, () => Promise.reject(new Error(`no ${input.token}`))).catch(() => {});
      return { token: input.token, list: [input.deep], ordinary: "stays" };
    });
    await start([code], { ...keys, secrets: () => TOKEN });
    const job = await until(id);
    expect(job.output).toEqual({ token: "***", list: [{ key: "***" }], ordinary: "stays" });
    expect((await logs(id))[0]).toMatchObject({
      message: "*** 1234",
      data: { "***": expect.stringMatching(/^\*{3}.{0,4}$/) },
    });
    expect(await places(TOKEN)).toEqual([]);
    expect(await places(Buffer.from(TOKEN).toString("base64").slice(0, -4))).toEqual([]);
  });

  it("is in no name: steps and artifacts that carry it are refused, and a result that does is told of", async () => {
    const contract = pipeline<{ token: string }>(name(), { sealed: ["token"], retry: { attempts: 1 } });
    const { id } = await client(keys.sealKeys).enqueue(contract, { token: TOKEN });
    const refusals: string[] = [];
    const code = implement(contract, async (job, { token }) => {
      for (const act of [() => job.step(`s-${token}`, () => 1), () => job.artifact(`${token}.txt`, () => "x")])
        await act().catch((error) => refusals.push(error.message));
      // What a step returns is data: it comes back as it was.
      return (await job.step("kept", () => ({ token }))).token === token;
    });
    await start([code], keys);
    expect((await until(id)).output).toBe(true);
    expect(refusals).toHaveLength(2);
    for (const message of refusals) expect(message).toMatch(/^The name of an? \w+ carries a secret of this job/);
    expect((await logs(id)).map(({ message }) => message)).toContain(
      'The result of step "kept" carries a secret of this job and is stored as it is',
    );
    expect(await places(TOKEN)).toEqual([expect.stringMatching(/^stillwake\.checkpoints/)]);
    await query("delete from stillwake.checkpoints where job_id = $1", [id]);
  });
});

describe("the keys", () => {
  it("are read from both forms", () => {
    const named = readSealKeys({ current: "k2", keys: { k1, k2 } })!;
    const text = readSealKeys(`k2:${k2}, k1:${k1}`)!;
    for (const { current, keys: ring } of [named, text]) {
      expect(current).toBe("k2");
      expect([...ring.keys()].sort()).toEqual(["k1", "k2"]);
      expect(ring.get("k1")!.export().toString("base64")).toBe(k1);
    }
    expect(readSealKeys(undefined)).toBeUndefined();
  });

  it.each([
    ["without an id", k1],
    ["that is too short", "k1:c2hvcnQ="],
    ["in an odd object", { current: "k1", keys: { k2 } }],
    ["with an odd id", { current: "k 1", keys: { "k 1": k1 } }],
    ["of another kind", { current: "k1", keys: { k1: 5 as never } }],
  ])("%s are refused without being shown", (_, wrong) => {
    const act = () => createStillwake({ url: database.url, sealKeys: wrong });
    expect(act).toThrow(InvalidInput);
    expect(act).toThrow(/newSealKey/);
    expect(act).not.toThrow(k1.slice(0, 20));
  });

  it.each([[["a..b"]], [["*"]], [["a.__proto__.b"]], [["a b"]], ["token" as never], [[""]], [[5 as never]]])(
    "paths must be paths: %j is refused",
    (sealed) => {
      expect(() => pipeline("p", { sealed })).toThrow(/sealed .* of pipeline "p" is not valid/);
    },
  );

  it("cost what they cost: a figure", async () => {
    const contract = pipeline(name(), { sealed: ["token"] });
    const plain = pipeline(name());
    const stillwake = client(keys.sealKeys);
    const inputs = Array.from({ length: 2000 }, (_, n) => ({ n, token: TOKEN }));
    const time = async (act: () => Promise<unknown>) => {
      const began = performance.now();
      await act();
      return performance.now() - began;
    };
    await stillwake.register(contract, plain);
    const without = await time(() => stillwake.enqueueMany(plain, inputs, { delay: "1h" }));
    const withThem = await time(() => stillwake.enqueueMany(contract, inputs, { delay: "1h" }));
    recordFigure("sealing one value of an input", Math.round(((withThem - without) / 2000) * 1000), "µs", "in a batch");
    expect(withThem).toBeLessThan(without * 10 + 5000);
  });
});

/** Rows of the schema's tables in which a text stands. */
async function places(text: string): Promise<string[]> {
  const tables = await query<{ name: string }>(
    "select oid::regclass::text as name from pg_class where relnamespace = 'stillwake'::regnamespace and relkind in ('r', 'p') and not relispartition",
  );
  const parts = tables.map(({ name: table }) => `select '${table}: ' || t::text as place from ${table} t`);
  const rows = await query<{ place: string }>(
    `select place from (${parts.join(" union all ")}) p where position($1 in place) > 0`,
    [text],
  );
  return rows.map(({ place }) => place);
}
