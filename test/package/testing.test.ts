// The helpers of stillwake/testing: cloned databases, waitFor, the fault proxy.
import { describe, expect, inject, it } from "vitest";
import { type FaultProxy, faultProxy, testDatabase, waitFor } from "../../src/testing/index.ts";
import { cleanUp } from "../support/cleanup.ts";
import { connect } from "../support/database/connections.ts";
import { freshDatabase } from "../support/database/database.ts";

const database = await freshDatabase();

describe("a test database", () => {
  it("is a separate clone of its template", async () => {
    await using first = await testDatabase({ server: inject("server"), prefix: "clone" });
    const client = await connect(first.url);
    await client.query("create table own (id int)");
    await client.end();
    await using second = await testDatabase({ server: inject("server"), template: first.name });
    const copy = await connect(second.url);
    await copy.query("insert into own values (1)");
    await copy.end();
    const original = await connect(first.url);
    expect((await original.query("select * from own")).rows).toEqual([]);
  });

  it("waits for closing connections before it is dropped", async () => {
    const doomed = await testDatabase({ server: inject("server") });
    const client = await connect(doomed.url);
    const [result] = await Promise.all([
      client.query("select 'done' as word from pg_sleep(0.5)").finally(() => client.end()),
      doomed.drop(),
    ]);
    expect(result.rows).toEqual([{ word: "done" }]);
    await expect(connect(doomed.url)).rejects.toThrow(/does not exist/);
  });

  it("can be dropped while a client stays connected", async () => {
    const doomed = await testDatabase({ server: inject("server") });
    await connect(doomed.url);
    await doomed.drop();
    await expect(connect(doomed.url)).rejects.toThrow(/does not exist/);
  });
});

describe("waitFor", () => {
  it("returns the first truthy value and treats an error as not yet true", async () => {
    let calls = 0;
    const answer = await waitFor(() => {
      calls++;
      if (calls === 1) throw new Error("not yet");
      return calls > 2 ? "yes" : undefined;
    });
    expect(answer).toBe("yes");
  });

  it("reports what it waited for and the last value", async () => {
    const waiting = waitFor(() => 0, { timeout: 20, what: "the moon" });
    await expect(waiting).rejects.toThrow("Waited 20 ms for the moon; the last value was: 0");
  });
});

describe("the fault proxy", () => {
  it("forwards everything by default", async () => {
    const proxy = await startProxy();
    const client = await connect(proxy.url);
    const rows = await client.query("select repeat('x', 1000000) as text");
    expect(rows.rows[0].text).toHaveLength(1_000_000);
    expect(proxy.connections()).toBe(1);
    await client.end();
    await waitFor(() => proxy.connections() === 0);
  });

  it("resets every connection, and new ones work again", async () => {
    const proxy = await startProxy();
    const client = await connect(proxy.url);
    const query = client.query("select pg_sleep(60)");
    query.catch(() => {});
    proxy.reset();
    await expect(query).rejects.toThrow();
    await connect(proxy.url);
  });

  it("refuses new connections and keeps open ones", async () => {
    const proxy = await startProxy();
    const client = await connect(proxy.url);
    proxy.mode = "refuse";
    await expect(connect(proxy.url)).rejects.toThrow();
    expect((await client.query("select 1 as one")).rows).toEqual([{ one: 1 }]);
  });

  it.each(["silent", "deaf", "mute"] as const)("is %s until it passes again", async (mode) => {
    const proxy = await startProxy();
    const client = await connect(proxy.url);
    const direct = await connect(database.url);
    await direct.query(`create table ${mode} (id int)`);
    proxy.mode = mode;
    let answered = false;
    const insert = client.query(`insert into ${mode} values (1)`).then(() => {
      answered = true;
    });
    const arrived = async () => (await direct.query(`select 1 from ${mode}`)).rowCount === 1;
    if (mode === "mute") await waitFor(arrived, { what: "the server to act" });
    else await expect(waitFor(arrived, { timeout: 150 })).rejects.toThrow();
    expect(answered).toBe(false);
    proxy.mode = "pass";
    await insert;
    expect(await arrived()).toBe(true);
  });

  it("delays every response by the latency, twice", async () => {
    const proxy = await startProxy();
    const client = await connect(proxy.url);
    proxy.latencyMs = 40;
    const began = performance.now();
    await client.query("select 1");
    expect(performance.now() - began).toBeGreaterThan(75);
  });

  it("loses exactly the response to a COMMIT: the client cannot know, and the row exists", async () => {
    const proxy = await startProxy();
    const client = await connect(proxy.url);
    const direct = await connect(database.url);
    await direct.query("create table ledger (id int)");
    await client.query("begin");
    await client.query("insert into ledger values (1)");
    const cut = proxy.cutAfterServerReceives((sent) => sent.includes("commit"));
    await expect(client.query("commit")).rejects.toThrow();
    await cut;
    expect((await direct.query("select id from ledger")).rows).toEqual([{ id: 1 }]);
  });
});

async function startProxy(): Promise<FaultProxy> {
  const proxy = await faultProxy(database.url);
  cleanUp(() => proxy.close());
  return proxy;
}
