// Sealed inputs: sealed by the client, opened by the worker, bound to job, tenant and path, and rejected by the database in plain text.
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
import { deferred } from "../support/deferred.ts";
import { recordFigure } from "../support/figures.ts";
import { inProcessFixture } from "../support/processes/in-process.ts";

const { database, query, start, until, logs, name } = await inProcessFixture();
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

/** Runs one job of a pipeline with these sealed paths on a worker with these options. */
async function run(input: Record<string, unknown>, sealed: string[], options: Partial<WorkerOptions> = keys) {
  const contract = pipeline(name(), { sealed, retry: { attempts: 2, initial: "1ms" } });
  const seen: unknown[] = [];
  const { id } = await client(keys.sealKeys).enqueue(contract, input);
  await start([implement(contract, (_, given) => void seen.push(given))], options);
  return { id, seen, kept: await stored(id), job: await until(id) };
}

describe("a sealed value", () => {
  it("is stored sealed, and the code receives what was enqueued", async () => {
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

  it("is validated before it is sealed, and sealed as the output of the schema", async () => {
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

  it("can be opened only in its own job, tenant and field", async () => {
    const tenant = (input: { of: string }) => input.of;
    const contract = pipeline(name(), { sealed: ["one", "two"], tenant, retry: { attempts: 1 } });
    const stillwake = client(keys.sealKeys);
    const { id } = await stillwake.enqueue(contract, { of: "a", one: TOKEN, two: "hello" } as never);
    const { one } = await stored(id);
    // An attacker who can write to the table or the API copies a sealed value.
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
        message: expect.stringMatching(/^input\.one cannot be unsealed with key "k1"/),
      });
    }
    expect(ran).toEqual([id]);
  });

  it("after a rotation is sealed with the new key; the old key still opens, and the error names a missing key", async () => {
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
      'input.token is sealed with key "k1", which this worker does not have (it has k2). Add key "k1" to the sealKeys of the worker (STILLWAKE_SEAL_KEYS) and retry the job',
    );
    expect((await logs(kept.id)).map(({ level, message }) => ({ level, message }))).toEqual([
      { level: "error", message: failure!.message },
    ]);
    await without.stop();
    // The remedy works.
    await start([code], { sealKeys: rotated });
    await client().retry(kept.id);
    expect((await until(kept.id)).state).toBe("completed");
  });

  it("is sealed for children by the keeper, and for each of many jobs separately", async () => {
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

  it("of a schedule is bound to the pipeline, and setting the same schedule again changes nothing", async () => {
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
    // The worker may be running it already.
    const [job] = await waitFor(
      async () => {
        const { jobs } = await stillwake.list({ pipeline: contract.name });
        return jobs.length > 0 && jobs;
      },
      { what: "the job of the occurrence" },
    );
    expect((await until(job!.id)).state).toBe("completed");
    expect(seen[0]).toEqual({ token: `${TOKEN}!` });
    await stillwake.schedules.remove(contract.name);
  });

  it("can be sealed by a client with keys and enqueued by one without, for one tenant", async () => {
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

  it("is deleted when its job is pruned", async () => {
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

describe("a plain value at a sealed path is rejected", () => {
  const contract = pipeline("guarded", { sealed: ["token", "auth.password", "accounts.*.token"] });

  it("by a client without a key, with a remedy; nothing is stored", async () => {
    const rejected = client().enqueue(contract, { token: TOKEN });
    await expect(rejected).rejects.toThrow(InvalidInput);
    await expect(rejected).rejects.toMatchObject({ field: "input.token", remedy: expect.stringMatching(/sealKeys/) });
    await expect(client().enqueueMany(contract, [{}, { token: TOKEN }])).rejects.toMatchObject({
      field: "input.token",
    });
    await expect(rejected).rejects.not.toThrow(TOKEN);
    expect(await query("select from stillwake.jobs where pipeline = 'guarded'")).toEqual([]);
  });

  it.each([
    ["a text", { token: "plain" }, "token"],
    ["deeper", { auth: { password: 1 } }, "auth.password"],
    ["in a list", { accounts: [{ token: { $secret: "ok" } }, { token: "plain" }] }, "accounts.*.token"],
    ["that only looks sealed", { token: { $sealed: "my password" } }, "token"],
    ["beside a reference", { token: { $secret: "ok", more: "plain" } }, "token"],
  ])("by the database, from every caller: %s", async (_, input, path) => {
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

  it("but missing values, null, references and sealed values are accepted", async () => {
    await client().register(contract);
    for (const input of [{}, { token: null }, { auth: "text" }, { accounts: {} }, { token: { $secret: "a" } }, 1, "x"])
      await query("select stillwake.enqueue('guarded', $1::jsonb, '{\"delay\":\"1h\"}')", [JSON.stringify(input)]);
    const { id } = await client(keys.sealKeys).enqueue(contract, { token: TOKEN }, { delay: "1h" });
    await client().enqueue("guarded", await stored(id), { delay: "1h" });
  });

  it("but accepted again when the pipeline no longer seals it", async () => {
    const paths = (sealed: string[]) => query("select stillwake.register_pipeline('loose', $1)", [{ sealed }]);
    await paths(["token"]);
    await expect(client().enqueue("loose", { token: 1 })).rejects.toMatchObject({ code: "INVALID_INPUT" });
    await client().register(pipeline("loose"));
    await client().enqueue("loose", { token: 1 }, { delay: "1h" });
    await expect(paths(["a..b"])).rejects.toMatchObject({ code: "SW001", detail: "sealed" });
  });

  it("as a key or tenant that contains it, and the error does not show it", async () => {
    const telling = pipeline(name(), { sealed: ["token"], key: (input: { token: string }) => `user:${input.token}` });
    const rejected = client(keys.sealKeys).enqueue(telling, { token: TOKEN });
    await expect(rejected).rejects.toThrow(/contains the sealed value of input\.token/);
    await expect(rejected).rejects.not.toThrow(TOKEN);
    const plain = pipeline(name(), { sealed: ["token"] });
    const idempotencyKey = TOKEN;
    await expect(client(keys.sealKeys).enqueue(plain, { token: TOKEN }, { idempotencyKey })).rejects.toThrow(
      /contains the sealed value/,
    );
  });
});

describe("a reference to a secret", () => {
  const env = { PATH: process.env.PATH, STILLWAKE_SECRET_GITHUB_TOKEN: TOKEN };

  it("is stored as a name; the worker reads the value from its environment", async () => {
    const { seen, kept, job } = await run({ token: secret("github-token") }, ["token"], { environment: env });
    expect(job.state).toBe("completed");
    expect(kept).toEqual({ token: { $secret: "github-token" } });
    expect(seen).toEqual([{ token: TOKEN }]);
  });

  it("passes the schema of its value, and needs no key", async () => {
    const contract = pipeline(name(), {
      input: z.object({ token: z.string().min(20), all: z.array(z.object({ key: z.string() })).default([]) }),
      sealed: ["token", "all.*.key"],
    });
    const input = { token: secret("github_token"), all: [{ key: secret("github_token") }] };
    const seen: unknown[] = [];
    const code = implement(contract, (_, given) => void seen.push(given));
    const { job } = await runJob(code, input, { url: database.url, worker: { environment: env } });
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

  it("is looked up by the `secrets` function of the worker, for its job, each name once", async () => {
    const lookups: unknown[] = [];
    const secrets = async (wanted: string, use: unknown) => {
      lookups.push([wanted, use]);
      return { user: "ann", token: TOKEN };
    };
    const input = { a: secret("login"), b: secret("login") };
    const { id, seen, job } = await run(input, ["a", "b"], { secrets });
    expect(seen).toEqual([{ a: { user: "ann", token: TOKEN }, b: { user: "ann", token: TOKEN } }]);
    expect(lookups).toEqual([["login", { job: id, pipeline: job.pipeline, tenant: null }]]);
  });

  it("to an unknown secret fails the job without a retry; a failed lookup is retried", async () => {
    const unknown = await run({ token: secret("unknown") }, ["token"], { environment: env });
    expect(unknown.job).toMatchObject({ state: "failed", attempt: 1, failure: { code: "SECRET_UNKNOWN" } });
    expect(unknown.job.failure?.message).toMatch(/^Secret "unknown" is not known .*STILLWAKE_SECRET_<NAME>/);
    let calls = 0;
    const secrets = () => {
      calls += 1;
      if (calls === 1) throw Object.assign(new Error(`rejected ${TOKEN}`), { code: "ECONNREFUSED" });
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

  it("at other paths is ordinary data", async () => {
    const input = { token: "x", note: { $secret: "github_token" }, deep: [{ $sealed: "j.k1.x.y" }] };
    const { seen } = await run(input, [], { environment: env });
    expect(seen).toEqual([input]);
  });

  it("whose lookup hangs does not keep the worker from stopping", async () => {
    const contract = pipeline(name(), { sealed: ["token"] });
    const { id } = await client().enqueue(contract, { token: secret("slow") });
    const { promise: begun, resolve: lookups } = deferred();
    const secrets = () => {
      lookups();
      return new Promise(() => {});
    };
    const { worker } = await start([implement(contract, () => {})], { secrets });
    await begun;
    await worker.stop();
    expect((await client().get(id)).state).toBe("queued");
  });

  it.each([["1st"], [""], ["a b"], [5 as never]])("cannot have the name %j", (wrong) => {
    expect(() => secret(wrong)).toThrow(/is not a valid secret name/);
  });
});

describe("an opened or looked-up value", () => {
  it("is redacted everywhere, however the code writes it; values under 8 characters are not", async () => {
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

  it("is rejected in names of steps and artifacts, and a result that contains it logs a warning", async () => {
    const contract = pipeline<{ token: string }>(name(), { sealed: ["token"], retry: { attempts: 1 } });
    const { id } = await client(keys.sealKeys).enqueue(contract, { token: TOKEN });
    const refusals: string[] = [];
    const code = implement(contract, async (job, { token }) => {
      for (const act of [() => job.step(`s-${token}`, () => 1), () => job.artifact(`${token}.txt`, () => "x")])
        await act().catch((error) => refusals.push(error.message));
      // Results of steps are not redacted.
      return (await job.step("kept", () => ({ token }))).token === token;
    });
    await start([code], keys);
    expect((await until(id)).output).toBe(true);
    expect(refusals).toHaveLength(2);
    for (const message of refusals) expect(message).toMatch(/^The name of an? \w+ contains a secret of this job/);
    expect((await logs(id)).map(({ message }) => message)).toContain(
      'The result of step "kept" contains a secret of this job and is stored unredacted',
    );
    expect(await places(TOKEN)).toEqual([expect.stringMatching(/^stillwake\.checkpoints/)]);
    await query("delete from stillwake.checkpoints where job_id = $1", [id]);
  });
});

describe("the keys", () => {
  it("are parsed from both forms", () => {
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
  ])("%s are rejected without being shown", (_, wrong) => {
    const act = () => createStillwake({ url: database.url, sealKeys: wrong });
    expect(act).toThrow(InvalidInput);
    expect(act).toThrow(/newSealKey/);
    expect(act).not.toThrow(k1.slice(0, 20));
  });

  it.each([[["a..b"]], [["*"]], [["a.__proto__.b"]], [["a b"]], ["token" as never], [[""]], [[5 as never]]])(
    "the invalid path %j is rejected",
    (sealed) => {
      expect(() => pipeline("p", { sealed })).toThrow(/sealed .* of pipeline "p" is not valid/);
    },
  );

  it("cost little time per value", async () => {
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

/** Rows of the schema that contain a text. */
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
