// The dependencies of a project in the application's tables: what is stored, what is taken away, and what happens when the database does not answer.
import { randomUUID } from "node:crypto";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { explain, saying } from "@stillwake/kit/failures";
import pg from "pg";
import { Fatal, pipeline } from "stillwake";
import { faultProxy, type RanJob, runJob } from "stillwake/testing";
import { implement } from "stillwake/worker";
import { afterAll, afterEach, describe, expect, it } from "vitest";
import { freshDatabase } from "../../../../test/support/database/database.ts";
import { recordFigure } from "../../../../test/support/figures.ts";
import { reaching, type Synced, syncDependencies } from "../../src/sync.ts";
import { migrate } from "../../src/tables.ts";

const { url } = await freshDatabase();
const folder = fs.mkdtempSync(path.join(os.tmpdir(), "extraction-sync-"));
const proxy = await faultProxy(url);
const direct = new pg.Pool({ connectionString: url });
/** As the application's own, through a network that can be broken. */
const pool = new pg.Pool({ connectionString: proxy.url, max: 2, connectionTimeoutMillis: 10_000 });
for (const one of [direct, pool]) one.on("error", () => {});
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

/** A bill of materials in which the root names the first packages, and those name the others. */
function bom(packages: readonly string[], named = packages.length): string {
  const purl = (name: string) => `pkg:npm/${name}`;
  const file = path.join(folder, `${randomUUID()}.json`);
  const components = packages.map((name) => {
    const [bare, version] = name.split("@");
    return { type: "library", name: bare, version, purl: purl(name), licenses: [{ license: { id: "MIT" } }] };
  });
  const dependencies = [
    { ref: "pkg:npm/app@1", dependsOn: packages.slice(0, named).map(purl) },
    { ref: purl(packages[0]!), dependsOn: packages.slice(named).map(purl) },
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

async function sync(projectId: string, file: string, extractionId = randomUUID()): Promise<Synced> {
  let synced: Synced | undefined;
  await reaching(pool)(async (tx) => {
    synced = await syncDependencies(tx, { projectId, extractionId }, file);
  });
  return synced!;
}

describe("a sync", () => {
  it("stores what is there, with what is direct told from what is not", async () => {
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

  it("changes nothing when it is done again", async () => {
    const projectId = await project();
    const extractionId = randomUUID();
    const file = bom(["a@1", "b@2"]);
    await sync(projectId, file, extractionId);
    const before = await stored(projectId);
    expect(await sync(projectId, file, extractionId)).toMatchObject({ direct: 2, transitive: 0 });
    expect(await stored(projectId)).toEqual(before);
  });

  it("takes away what is gone, keeps since when the others are known, and leaves other projects alone", async () => {
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

  it("leaves everything as it was when it does not come to its end", async () => {
    const projectId = await project();
    await sync(projectId, bom(["a@1"]));
    const sudden = reaching(pool)(async (tx) => {
      await syncDependencies(tx, { projectId, extractionId: randomUUID() }, bom(["b@2"]));
      throw new Error("no");
    });
    await expect(sudden).rejects.toThrow("no");
    expect(await packagesOf(projectId)).toEqual(["a@1"]);
  });

  it("leaves those of a later extraction that has completed, and counts its own", async () => {
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

  it("for a project that is gone says so, for good", async () => {
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

describe("trouble with the database", () => {
  const contract = pipeline<{ projectId: string; file: string }>("sync", { retry: { attempts: 1 } });
  /** Happens at the beginning of each try, once it has its connection. */
  let onTry: (count: number, tx: pg.PoolClient) => unknown = () => {};
  let tries = 0;

  const code = implement(
    contract,
    (job, { projectId, file }) =>
      saying(job, "Extraction", async () => {
        const synced = await job.tx(
          "deps_sync",
          {
            start: "Syncing dependencies to database...",
            end: (done: Synced) => `Dependencies synced (${done.direct} direct, ${done.transitive} transitive)`,
            retry: { attempts: 3, initial: "50ms" },
          },
          reaching(pool),
          async (tx: pg.PoolClient) => {
            await onTry(++tries, tx);
            return syncDependencies(tx, { projectId, extractionId: job.id }, file);
          },
        );
        return synced;
      }),
    { explain },
  );

  async function synced(happens: typeof onTry): Promise<RanJob & { projectId: string; lines: string[] }> {
    onTry = happens;
    tries = 0;
    const projectId = await project();
    const ran = await runJob(code, { projectId, file: bom(["a@1", "b@2"], 1) }, { url, timeout: 60_000 });
    return { ...ran, projectId, lines: ran.logs.map(({ level, message }) => `${level} ${message}`) };
  }

  const START = "info Syncing dependencies to database...";
  const END = "success Dependencies synced (1 direct, 1 transitive)";

  it("is said in yellow and tried again when the connection breaks: twice, and then it goes on", async () => {
    const { job, lines, projectId } = await synced((count, tx) => (count < 3 ? breakOff(tx) : undefined));
    expect(job.state).toBe("completed");
    expect(lines).toEqual([START, `warning ${MESSAGE}`, `warning ${MESSAGE}`, END]);
    expect(await packagesOf(projectId)).toEqual(["a@1", "b@2"]);
  }, 60_000);

  it("ends the attempt after 3 tries that cannot connect", async () => {
    proxy.reset();
    proxy.mode = "refuse";
    const asked = proxy.asked();
    const { job, lines, projectId } = await synced(() => {});
    expect(job.state).toBe("failed");
    expect(tries).toBe(0);
    expect(proxy.asked() - asked).toBe(3);
    expect(lines).toEqual([START, `warning ${MESSAGE}`, `warning ${MESSAGE}`, `error Extraction failed: ${MESSAGE}`]);
    expect(await packagesOf(projectId)).toEqual([]);
  }, 60_000);

  it("is said when a connection is not answered in time", async () => {
    proxy.mode = "silent";
    const hasty = new pg.Pool({ connectionString: proxy.url, connectionTimeoutMillis: 200 });
    await expect(reaching(hasty)(async () => {})).rejects.toMatchObject({ message: MESSAGE, code: "SYNC_DATABASE" });
    await hasty.end();
  });

  it("is none when only the answer to the commit was lost: nothing is done twice", async () => {
    const cut = proxy.cutAfterServerReceives((sent) => /^Q....commit\0/s.test(sent.toString("latin1")));
    const { job, lines, projectId } = await synced(() => {});
    await cut;
    expect(job.state).toBe("completed");
    expect(tries).toBe(1);
    expect(lines).toEqual([START, END]);
    expect(await packagesOf(projectId)).toEqual(["a@1", "b@2"]);
  }, 60_000);

  it.each(["57P01", "57P03", "53300", "08006", "57014", "40P01"])("is what SQLSTATE %s says", async (state) => {
    await expect(raised(state)).rejects.toMatchObject({ message: MESSAGE, code: "SYNC_DATABASE" });
  });

  it.each(["23505", "42P01", "22021", "P0001"])("is not what SQLSTATE %s says", async (state) => {
    await expect(raised(state)).rejects.toMatchObject({ message: "said so", code: state });
  });
});

async function raised(state: string): Promise<void> {
  await reaching(direct)((tx) => tx.query(`do $$ begin raise exception 'said so' using errcode = '${state}'; end $$`));
}

async function breakOff(tx: pg.PoolClient): Promise<void> {
  const { rows } = await tx.query("select pg_backend_pid() as pid");
  await direct.query("select pg_terminate_backend($1, 5000)", [rows[0].pid]);
}
