// The step deps_sync: stored and removed dependencies, and database failures.
import { randomUUID } from "node:crypto";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { explain, logJobFailure } from "@stillwake/kit/failures";
import pg from "pg";
import { Fatal, pipeline } from "stillwake";
import { faultProxy, type RanJob, runJob } from "stillwake/testing";
import { implement } from "stillwake/worker";
import { afterAll, afterEach, describe, expect, it } from "vitest";
import { freshDatabase } from "../../../../test/support/database/database.ts";
import { recordFigure } from "../../../../test/support/figures.ts";
import { migrate } from "../../src/app.ts";
import { explainDatabaseErrors, type SyncResult, syncDependencies } from "../../src/sync.ts";

const { url } = await freshDatabase();
const folder = fs.mkdtempSync(path.join(os.tmpdir(), "extraction-sync-"));
const proxy = await faultProxy(url);
const direct = new pg.Pool({ connectionString: url });
/** The application's pool, through a proxy that can be broken. */
const pool = new pg.Pool({ connectionString: proxy.url, max: 2, connectionTimeoutMillis: 10_000 });
for (const each of [direct, pool]) each.on("error", () => {});
await migrate(direct);
afterEach(() => {
  proxy.mode = "pass";
});
afterAll(async () => {
  await pool.end();
  await direct.end();
  await proxy.close();
  fs.rmSync(folder, { recursive: true, force: true });
});

const MESSAGE = "Database connection error during sync - will retry";

/** Writes an SBOM: the root depends on the first packages, the first package on the others. */
function bom(packages: readonly string[], directCount = packages.length): string {
  const purl = (name: string) => `pkg:npm/${name}`;
  const file = path.join(folder, `${randomUUID()}.json`);
  const components = packages.map((name) => {
    const [bare, version] = name.split("@");
    return { type: "library", name: bare, version, purl: purl(name), licenses: [{ license: { id: "MIT" } }] };
  });
  const dependencies = [
    { ref: "pkg:npm/app@1", dependsOn: packages.slice(0, directCount).map(purl) },
    { ref: purl(packages[0]!), dependsOn: packages.slice(directCount).map(purl) },
  ];
  const metadata = { component: { "bom-ref": "pkg:npm/app@1", type: "application" } };
  fs.writeFileSync(file, JSON.stringify({ metadata, components, dependencies }));
  return file;
}

async function project(): Promise<string> {
  const { rows } = await direct.query(
    "insert into extraction.projects (organization_id, name) values (gen_random_uuid(), 'a project') returning id",
  );
  return rows[0].id;
}

async function stored(projectId: string): Promise<Record<string, unknown>[]> {
  const { rows } = await direct.query(
    `select name || '@' || version as package, direct, ecosystem, licenses, extraction_id, first_seen_at
     from extraction.dependencies where project_id = $1 order by purl`,
    [projectId],
  );
  return rows;
}

const packagesOf = async (projectId: string) => (await stored(projectId)).map((row) => row.package);

async function sync(projectId: string, file: string, extractionId = randomUUID()): Promise<SyncResult> {
  let synced: SyncResult | undefined;
  await explainDatabaseErrors(pool)(async (tx) => {
    synced = await syncDependencies(tx, { projectId, extractionId }, file);
  });
  return synced!;
}

describe("a sync", () => {
  it("stores direct and transitive dependencies", async () => {
    const projectId = await project();
    const extractionId = randomUUID();
    const file = bom(["a@1", "b@2", "c@3"], 2);
    expect(await sync(projectId, file, extractionId)).toMatchObject({ direct: 2, transitive: 1 });
    const rest = { ecosystem: "npm", licenses: ["MIT"], extraction_id: extractionId };
    expect(await stored(projectId)).toMatchObject([
      { package: "a@1", direct: true, ...rest },
      { package: "b@2", direct: true, ...rest },
      { package: "c@3", direct: false, ...rest },
    ]);
  });

  it("changes nothing when it is repeated", async () => {
    const projectId = await project();
    const extractionId = randomUUID();
    const file = bom(["a@1", "b@2"]);
    await sync(projectId, file, extractionId);
    const before = await stored(projectId);
    expect(await sync(projectId, file, extractionId)).toMatchObject({ direct: 2, transitive: 0 });
    expect(await stored(projectId)).toEqual(before);
  });

  it("removes missing dependencies, keeps first_seen_at of the others, and does not affect other projects", async () => {
    const [projectId, other] = [await project(), await project()];
    await sync(other, bom(["a@1"]));
    await sync(projectId, bom(["a@1", "b@2"]));
    const [known] = await stored(projectId);
    await sync(projectId, bom(["c@1", "a@1"], 1));
    const [a, c, ...more] = await stored(projectId);
    expect(more).toEqual([]);
    expect(a).toMatchObject({ package: "a@1", direct: false, first_seen_at: known!.first_seen_at });
    expect(c).toMatchObject({ package: "c@1", direct: true });
    expect(await packagesOf(other)).toEqual(["a@1"]);
  });

  it("changes nothing if the transaction fails", async () => {
    const projectId = await project();
    await sync(projectId, bom(["a@1"]));
    const failing = explainDatabaseErrors(pool)(async (tx) => {
      await syncDependencies(tx, { projectId, extractionId: randomUUID() }, bom(["b@2"]));
      throw new Error("no");
    });
    await expect(failing).rejects.toThrow("no");
    expect(await packagesOf(projectId)).toEqual(["a@1"]);
  });

  it("does not overwrite those of a later completed extraction, and counts its own", async () => {
    const projectId = await project();
    const [old, later] = [randomUUID(), randomUUID()];
    await direct.query(
      `insert into extraction.extractions (id, project_id, created_at, summary)
       values ($1, $3, now() - interval '1 day', null), ($2, $3, now(), '{}')`,
      [old, later, projectId],
    );
    expect(await sync(projectId, bom(["b@2"]), later)).toEqual({ direct: 1, transitive: 0, superseded: false });
    expect(await sync(projectId, bom(["a@1", "c@3"], 1), old)).toEqual({ direct: 1, transitive: 1, superseded: true });
    expect(await packagesOf(projectId)).toEqual(["b@2"]);
  });

  it("fails for a deleted project", async () => {
    const error = await sync(randomUUID(), bom(["a@1"])).catch((thrown) => thrown);
    expect(error).toBeInstanceOf(Fatal);
    expect(error).toMatchObject({ message: "The project was deleted", code: "PROJECT_GONE" });
  });

  it("stores 50,000 dependencies in batches", async () => {
    const projectId = await project();
    const packages = Array.from({ length: 50_000 }, (_, n) => `package-${n}@1.0.${n}`);
    const began = performance.now();
    expect(await sync(projectId, bom(packages, 1000))).toMatchObject({ direct: 1000, transitive: 49_000 });
    recordFigure("extraction_sync_50k", Math.round(performance.now() - began), "ms", "new rows");
    const { rows } = await direct.query(
      "select count(*)::int as n from extraction.dependencies where project_id = $1",
      [projectId],
    );
    expect(rows[0].n).toBe(50_000);
  }, 90_000);
});

describe("a database failure", () => {
  const contract = pipeline<{ projectId: string; file: string }>("sync", { retry: { attempts: 1 } });
  /** Called at the start of each transaction. */
  let onTransaction: (count: number, tx: pg.PoolClient) => unknown = () => {};
  let transactions = 0;

  const code = implement(
    contract,
    (job, { projectId, file }) =>
      logJobFailure(job, "Extraction", async () => {
        const synced = await job.tx(
          "deps_sync",
          {
            start: "Syncing dependencies to database...",
            end: (done: SyncResult) => `Dependencies synced (${done.direct} direct, ${done.transitive} transitive)`,
            retry: { attempts: 3, initial: "50ms" },
          },
          explainDatabaseErrors(pool),
          async (tx: pg.PoolClient) => {
            await onTransaction(++transactions, tx);
            return syncDependencies(tx, { projectId, extractionId: job.id }, file);
          },
        );
        return synced;
      }),
    { explain },
  );

  async function runSync(callback: typeof onTransaction): Promise<RanJob & { projectId: string; lines: string[] }> {
    onTransaction = callback;
    transactions = 0;
    const projectId = await project();
    const ran = await runJob(code, { projectId, file: bom(["a@1", "b@2"], 1) }, { url, timeout: 60_000 });
    return { ...ran, projectId, lines: ran.logs.map(({ level, message }) => `${level} ${message}`) };
  }

  const START = "info Syncing dependencies to database...";
  const END = "success Dependencies synced (1 direct, 1 transitive)";

  it("is logged as a warning and retried if the connection breaks twice", async () => {
    const { job, lines, projectId } = await runSync((count, tx) => (count < 3 ? terminate(tx) : undefined));
    expect(job.state).toBe("completed");
    expect(lines).toEqual([START, `warning ${MESSAGE}`, `warning ${MESSAGE}`, END]);
    expect(await packagesOf(projectId)).toEqual(["a@1", "b@2"]);
  }, 60_000);

  it("fails the attempt after 3 failed connections", async () => {
    proxy.reset();
    proxy.mode = "refuse";
    const before = proxy.asked();
    const { job, lines, projectId } = await runSync(() => {});
    expect(job.state).toBe("failed");
    expect(transactions).toBe(0);
    expect(proxy.asked() - before).toBe(3);
    expect(lines).toEqual([START, `warning ${MESSAGE}`, `warning ${MESSAGE}`, `error Extraction failed: ${MESSAGE}`]);
    expect(await packagesOf(projectId)).toEqual([]);
  }, 60_000);

  it("is explained if a connection times out", async () => {
    proxy.mode = "silent";
    const impatient = new pg.Pool({ connectionString: proxy.url, connectionTimeoutMillis: 200 });
    await expect(explainDatabaseErrors(impatient)(async () => {})).rejects.toMatchObject({
      message: MESSAGE,
      code: "SYNC_DATABASE",
    });
    await impatient.end();
  });

  it("is no failure if only the response to COMMIT was lost: nothing is repeated", async () => {
    const cut = proxy.cutAfterServerReceives((sent) => /^Q....commit\0/s.test(sent.toString("latin1")));
    const { job, lines, projectId } = await runSync(() => {});
    await cut;
    expect(job.state).toBe("completed");
    expect(transactions).toBe(1);
    expect(lines).toEqual([START, END]);
    expect(await packagesOf(projectId)).toEqual(["a@1", "b@2"]);
  }, 60_000);

  it.each(["57P01", "57P03", "53300", "08006", "57014", "40P01"])("is SQLSTATE %s", async (state) => {
    await expect(raise(state)).rejects.toMatchObject({ message: MESSAGE, code: "SYNC_DATABASE" });
  });

  it.each(["23505", "42P01", "22021", "P0001"])("is not SQLSTATE %s", async (state) => {
    await expect(raise(state)).rejects.toMatchObject({ message: "raised", code: state });
  });
});

async function raise(state: string): Promise<void> {
  await explainDatabaseErrors(direct)((tx) =>
    tx.query(`do $$ begin raise exception 'raised' using errcode = '${state}'; end $$`),
  );
}

async function terminate(tx: pg.PoolClient): Promise<void> {
  const { rows } = await tx.query("select pg_backend_pid() as pid");
  await direct.query("select pg_terminate_backend($1, 5000)", [rows[0].pid]);
}
