// Keys and tenants by paths of the input: stored with the pipeline, and the same for every way in.
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { resolveLabels } from "../../src/client/enqueue-options.ts";
import { createStillwake, InvalidInput, newSealKey, pipeline, schedule, seal } from "../../src/index.ts";
import { createServer } from "../../src/server/index.ts";
import { implement } from "../../src/worker/index.ts";
import { runCommand } from "../support/processes/cli-in-process.ts";
import { inProcessFixture } from "../support/processes/in-process.ts";
import { callerOf } from "../support/server/callers.ts";

const { database, stillwake, query, run, start, until } = await inProcessFixture();

const scan = pipeline("scan", {
  input: z.object({ repo: z.object({ owner: z.string() }), org: z.string().optional() }),
  key: "repo.owner",
  tenant: "org",
  onConflict: "wait",
});
await stillwake.register(scan);

let owners = 0;
const newInput = () => ({ repo: { owner: `owner-${++owners}` }, org: "acme" });

describe("a key and a tenant by path hold for", () => {
  const expectLabels = async (id: string, input: ReturnType<typeof newInput>) =>
    expect(await stillwake.get(id)).toMatchObject({ key: input.repo.owner, tenant: input.org });

  it("enqueue and enqueueMany with the contract, and with its name", async () => {
    for (const target of [scan, "scan"] as const) {
      const inputs = [newInput(), newInput(), newInput()];
      const { id } = await stillwake.enqueue(target, inputs[0]!);
      await expectLabels(id, inputs[0]!);
      const many = await stillwake.enqueueMany(target, inputs.slice(1));
      for (const [index, job] of many.entries()) await expectLabels(job.id, inputs[index + 1]!);
    }
  });

  it("SQL: enqueue and enqueue_many", async () => {
    const [one, two] = [newInput(), newInput()];
    const [single] = await query<{ id: string }>("select stillwake.enqueue('scan', $1) as id", [one]);
    await expectLabels(single!.id, one);
    const text = "select (stillwake.enqueue_many('scan', $1))[1] as id";
    const [many] = await query<{ id: string }>(text, [JSON.stringify([two])]);
    await expectLabels(many!.id, two);
  });

  it("HTTP, which the dashboard uses, and the command line", async () => {
    const server = createServer({ url: database.url, secret: "a secret of thirty-two characters or more" });
    const { token } = await server.stillwake.tokens.create({ name: "root", role: "admin" });
    const [sent, typed] = [newInput(), newInput()];
    const { json } = await callerOf(server, token)("POST", "/v1/jobs", { body: { pipeline: "scan", input: sent } });
    await expectLabels(json.id, sent);
    const { stdout } = await runCommand(["enqueue", "scan", JSON.stringify(typed), "--url", database.url, "--json"]);
    await expectLabels(JSON.parse(stdout).id, typed);
    await server.close();
  });

  it("the jobs of schedules", async () => {
    const [coded, plain] = [newInput(), newInput()];
    await stillwake.schedules.set(schedule("coded", { cron: "* * * * *", pipeline: scan, input: coded }));
    await query("select stillwake.set_schedule('plain', $1)", [
      { cron: "* * * * *", pipeline: "scan", input: plain, options: {} },
    ]);
    await query("update stillwake.schedules set next_at = stillwake.now(), due_at = stillwake.now()");
    const fired = await query<{ job_id: string }>("select job_id from stillwake.run_schedules() where act = 'fired'");
    expect(fired).toHaveLength(2);
    const jobs = await Promise.all(fired.map(({ job_id }) => stillwake.get(job_id)));
    expect(jobs.map(({ key, tenant }) => `${tenant} ${key}`).sort()).toEqual(
      [coded, plain].map(({ repo, org }) => `${org} ${repo.owner}`).sort(),
    );
  });

  it("the jobs of schedules with overlap queue", async () => {
    const input = newInput();
    const settings = { cron: "* * * * *", pipeline: "scan", input, overlap: "queue" };
    await query("select stillwake.set_schedule('queued', $1)", [settings]);
    await query(
      "update stillwake.schedules set next_at = stillwake.now(), due_at = stillwake.now() where name = 'queued'",
    );
    const [fired] = await query<{ job_id: string }>(
      "select job_id from stillwake.run_schedules() where schedule = 'queued'",
    );
    await expectLabels(fired!.job_id, input);
  });

  it("spawned jobs, which wait for their key", async () => {
    const input = newInput();
    const holder = await stillwake.enqueue(scan, input);
    const { id } = await run({ until: (job) => job.waitingFor === "children" }, async (parent) => {
      await (await parent.spawn(scan, [input])).done();
    });
    const [child] = (await stillwake.list({ parent: id })).jobs;
    expect(child).toMatchObject({ key: input.repo.owner, tenant: "acme", waitingFor: "key" });
    await start([implement(scan, () => "done")]);
    await until(holder.id);
    expect(await until(child!.id)).toMatchObject({ state: "completed" });
  });
});

describe("a spawn by a caller without the contract", () => {
  it("cannot wait for a key that its own job has", async () => {
    await query("select stillwake.register_pipeline('nested', $1)", [{ key: "name", on_conflict: "join" }]);
    await query("select stillwake.enqueue('nested', $1)", [{ name: "same" }]);
    const [held] = await query<{ job_id: string; epoch: string; lease_id: string }>(
      "select job_id, epoch, lease_id from stillwake.claim('spawner', 'default', array['nested'], 1, '1 hour')",
    );
    const spawn = (name: string) =>
      query("select stillwake.spawn($1, $2, $3, $4, 'nested', $5, '{}', array[stillwake.new_id()], 0, 1, 'fail')", [
        held!.job_id,
        held!.epoch,
        held!.lease_id,
        `of ${name}`,
        JSON.stringify([{ name }]),
      ]);
    await expect(spawn("same")).rejects.toMatchObject({ code: "SW006", detail: "key" });
    await spawn("other");
    // It waits for a taken key, although the pipeline says join: its parent waits for its result.
    const { id: taken } = await stillwake.enqueue("nested", { name: "taken" });
    await spawn("taken");
    const children = await query<{ id: string; key: string }>(
      "select id, key from stillwake.live_jobs where parent_id = $1 order by key",
      [held!.job_id],
    );
    expect(children.map(({ key }) => key)).toEqual(["other", "taken"]);
    expect(children[1]!.id).not.toBe(taken);
  });
});

describe("a label by path", () => {
  it("is replaced by the option, and removed by an option null in SQL", async () => {
    const { id } = await stillwake.enqueue(scan, newInput(), { key: "chosen", tenant: "globex" });
    expect(await stillwake.get(id)).toMatchObject({ key: "chosen", tenant: "globex" });
    const [row] = await query<{ id: string }>("select stillwake.enqueue('scan', $1, '{\"key\": null}') as id", [
      newInput(),
    ]);
    expect(await stillwake.get(row!.id)).toMatchObject({ key: null, tenant: "acme" });
  });

  it("is absent where the input has no value, or null", async () => {
    const { id } = await stillwake.enqueue("scan", { repo: { owner: null } });
    expect(await stillwake.get(id)).toMatchObject({ key: null, tenant: null });
    expect(await stillwake.get((await stillwake.enqueue("scan", [])).id)).toMatchObject({ key: null, tenant: null });
  });

  it("is removed when the contract no longer names it, or names a function", async () => {
    await query('select stillwake.register_pipeline(\'was-keyed\', \'{"key": "n", "tenant": "t"}\')');
    const keyed = await stillwake.enqueue("was-keyed", { n: 1, t: "x" });
    expect(await stillwake.get(keyed.id)).toMatchObject({ key: "1", tenant: "x" });
    await using other = createStillwake({ url: database.url });
    await other.register(pipeline<{ n: number }>("was-keyed", { key: ({ n }) => `f${n}` }));
    const [row] = await query<{ id: string }>("select stillwake.enqueue('was-keyed', '{\"n\": 1}') as id");
    expect(await stillwake.get(row!.id)).toMatchObject({ key: null, tenant: null });
  });

  it("of several fields joins their values unambiguously", async () => {
    const both = pipeline<{ project: string | number; branch?: string }>("both", { key: ["project", "branch"] });
    const keyOf = async (input: { project: string | number; branch?: string }) =>
      (await stillwake.get((await stillwake.enqueue(both, input)).id)).key;
    expect(await keyOf({ project: 7, branch: "main" })).toBe("7/main");
    expect(await keyOf({ project: "a/b", branch: "c" })).toBe("a\\/b/c");
    expect(await keyOf({ project: "a", branch: "b/c" })).toBe("a/b\\/c");
    expect(await keyOf({ project: "a" })).toBe("a/");
  });

  it("is refused for objects, arrays and empty texts, with the path, by the client and by SQL", async () => {
    const any = pipeline("any", { key: "repo.owner", tenant: "org" });
    await stillwake.register(any);
    for (const [input, path, is] of [
      [{ repo: { owner: { name: "x" } } }, "repo.owner", "an object"],
      [{ repo: { owner: ["x"] } }, "repo.owner", "an array"],
      [{ org: "" }, "org", "an empty text"],
    ] as const) {
      const field = path === "org" ? "tenant" : "key";
      await expect(stillwake.enqueue(any, input)).rejects.toMatchObject({
        constructor: InvalidInput,
        field: `input.${path}`,
        message: `input.${path} cannot be the ${field}: it is ${is}. Pass a text, a number, a boolean or null there, or pass the option ${field}`,
      });
      await expect(
        query("select stillwake.enqueue_many('any', $1)", [JSON.stringify([{}, input])]),
      ).rejects.toMatchObject({
        code: "SW001",
        detail: `inputs[1].${path}`,
        message: `${path} of the input at position 1 cannot be the ${field}: it is ${is}`,
      });
      const settings = { cron: "@daily", pipeline: "any", input };
      await expect(query("select stillwake.set_schedule('bad', $1)", [settings])).rejects.toMatchObject({
        code: "SW001",
      });
    }
    const long = { repo: { owner: "x".repeat(501) } };
    await expect(stillwake.enqueue(any, long)).rejects.toMatchObject({ field: "key of input" });
    await expect(stillwake.enqueue("any", long)).rejects.toMatchObject({ field: "inputs[0].repo.owner" });
  });

  it("that is refused fails its own call only, not those that share its statement", async () => {
    await query("select stillwake.register_pipeline('shared', '{\"key\": \"k\"}')");
    const calls = Array.from({ length: 20 }, (_, n) => stillwake.enqueue("shared", { k: n === 7 ? {} : n }));
    const results = await Promise.allSettled(calls);
    expect(results.flatMap(({ status }, n) => (status === "rejected" ? [n] : []))).toEqual([7]);
  });

  it("cannot be sealed", async () => {
    const sealed = ["auth.token", "accounts.*.password"];
    for (const path of ["auth.token", "auth", "auth.token.value", "accounts.x.password"]) {
      const bad = { sealed, key: path };
      expect(() => pipeline("p", bad)).toThrow(
        new RegExp(`^key of pipeline "p" cannot be read from ${path}, which is sealed`),
      );
      await expect(query("select stillwake.register_pipeline('p', $1)", [bad])).rejects.toMatchObject({
        code: "SW001",
        detail: "key",
      });
    }
    const good = { sealed, key: "auth.user", tenant: "accounts.x.name" };
    expect(pipeline("p", good).settings).toMatchObject({ key: ["auth.user"], tenant: ["accounts.x.name"] });
    await query("select stillwake.register_pipeline('p', $1)", [good]);
  });

  it("is a path, or up to five, in code and in SQL", async () => {
    for (const key of ["", "a..b", "a.0", "a.*", "0", " a", [], Array(6).fill("a"), [7], {}, "x".repeat(201)]) {
      expect(() => pipeline("p", { key: key as string }), JSON.stringify(key)).toThrow(InvalidInput);
      const refused = query("select stillwake.register_pipeline('p', $1)", [{ key }]);
      await expect(refused, JSON.stringify(key)).rejects.toMatchObject({ code: "SW001", detail: "key" });
    }
  });

  it("that no input of the schema can have is refused, with the fields that exist", async () => {
    const input = z.object({
      importId: z.string(),
      repo: z.object({ owner: z.string() }),
      more: z.record(z.string(), z.string()),
    });
    for (const [key, remedy] of [
      ["importID", "importId, repo, more"],
      ["repo.name", "owner"],
    ] as const) {
      const refused = stillwake.enqueue(pipeline("p", { input, key: key as never }), {} as never);
      await expect(refused, key).rejects.toMatchObject({
        code: "INVALID_INPUT",
        field: "key",
        remedy: `Name a field of the input schema: ${remedy}`,
      });
    }
    const parts = z.union([input, z.object({ other: z.string() })]);
    const renamed = z.object({ old: z.string() }).transform(({ old }) => ({ id: old }));
    for (const accepted of [
      pipeline("p", { input, key: "more.anything", tenant: "repo.owner" }),
      pipeline("p", { input: parts, key: "anything" as never }),
      pipeline("p", { input: z.looseObject({ a: z.string() }), key: "b" as never }),
      pipeline("p", { input: renamed, key: "id" }),
    ]) {
      expect(accepted.settings.key).toEqual([accepted.options.key]);
    }
  });

  it("binds sealed values to the tenant, for callers without the contract too", async () => {
    const sealKeys = { current: "k1", keys: { k1: newSealKey() } };
    const secret = pipeline<{ org: string; token: string }>("secret", { tenant: "org", sealed: ["token"] });
    await using client = createStillwake({ url: database.url, sealKeys });
    await start([implement(secret, (_job, { token }) => token.length)], { sealKeys });
    const input = { org: "acme", token: "a long secret token" };
    const sealed = await client.enqueue("secret", seal(secret, input, { sealKeys }));
    const direct = await client.enqueue(secret, input);
    for (const { id } of [sealed, direct]) {
      expect(await until(id)).toMatchObject({ state: "completed", tenant: "acme", output: input.token.length });
    }
  });
});

describe("the texts of labels", () => {
  it("are the same in the client and in SQL, for any input", async () => {
    const leaf = fc.oneof(
      fc.string({ unit: "grapheme", maxLength: 20 }),
      fc.double({ noNaN: true, noDefaultInfinity: true }),
      fc.integer(),
      fc.constantFrom(
        null,
        true,
        false,
        1e21,
        -1e-7,
        1.5e300,
        5e-324,
        -0,
        0.1,
        "/",
        "\\",
        "a/b",
        new Date(0),
        {},
        [],
        [1],
      ),
    );
    const input = fc.oneof(
      leaf,
      fc.record({ a: leaf, b: fc.oneof(leaf, fc.record({ a: leaf })) }, { requiredKeys: [] }),
    );
    const paths = fc.constantFrom(["a"], ["b.a"], ["a", "b"], ["b.a", "a", "c"], ["length"]);
    await fc.assert(
      fc.asyncProperty(fc.array(input, { minLength: 1, maxLength: 20 }), paths, async (inputs, keys) => {
        const json = JSON.stringify(inputs);
        fc.pre(!json.includes("\\u0000"));
        const contract = pipeline("any", { key: keys });
        const inClient = (() => {
          try {
            return inputs.map((one) => resolveLabels(contract, one, {}, "input").key);
          } catch {
            return "refused";
          }
        })();
        const inSql = await query<{ labels: string[] | null }>("select stillwake.labels_of($1, $2, 'key') as labels", [
          json,
          keys,
        ]).then(
          ([row]) => row!.labels ?? inputs.map(() => null),
          (error) => (error.code === "SW001" ? "refused" : error),
        );
        expect(inSql).toEqual(inClient);
      }),
      { numRuns: 400 },
    );
  }, 60_000);

  it("do not depend on how a number is written", async () => {
    const [row] = await query<{ labels: string[] }>("select stillwake.labels_of($1, '{n}', 'key') as labels", [
      '[{"n": 1}, {"n": 1.0}, {"n": 1e0}, {"n": 10.50}, {"n": 1e2}, {"n": -0}]',
    ]);
    expect(row!.labels).toEqual(["1", "1", "1", "10.5", "100", "0"]);
  });
});
