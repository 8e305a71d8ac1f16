// Epochs and sequence numbers beyond 32 and 53 bits are returned exactly on every path.
import { afterAll, describe, expect, it } from "vitest";
import { settleAndClaim } from "../../src/db/calls/worker.ts";
import { pipeline } from "../../src/index.ts";
import { travel } from "../../src/testing/index.ts";
import { connectedDatabase } from "../support/database/connections.ts";
import { recordFigure } from "../support/figures.ts";

const { stillwake, client: sql } = await connectedDatabase();
const report = pipeline("report", { retry: { attempts: 1000, crashes: 1000, initial: "0s", max: "0s" } });
const request = { worker: "w", pool: "default", pipelines: ["report"], limit: 1, lease: "1 minute" };
const paths = new Set<string>();

afterAll(async () => {
  recordFigure("big numbers: paths that carry numbers above 2^53", paths.size);
});

describe.each([2n ** 31n - 1n, 2n ** 53n - 1n, 2n ** 62n])("an epoch and a sequence at %s", (start) => {
  it("pass through claim, heartbeat, checkpoints, logs, settle and the client, exact as text", async () => {
    const { id } = await stillwake.enqueue(report, null);
    await sql.query("update stillwake.live_jobs set epoch = $2, seq = $2 where id = $1", [id, String(start)]);

    // claim
    const claimed = await sql.query(
      "select job_id, epoch, lease_id from stillwake.claim('w', 'default', '{report}', 1)",
    );
    let { epoch, lease_id } = claimed.rows[0];
    const grown = (by: bigint) => String(start + by);
    expect(epoch).toBe(grown(1n));
    passed("claim");

    // heartbeat
    const heartbeat = await sql.query("select * from stillwake.heartbeat($1, $2, $3)", [[id], [epoch], [lease_id]]);
    expect(heartbeat.rows).toEqual([]);
    const stale = await sql.query("select verdict from stillwake.heartbeat($1, $2, $3)", [
      [id],
      [grown(0n)],
      [lease_id],
    ]);
    expect(stale.rows).toEqual([{ verdict: "lost" }]);
    passed("heartbeat");

    // checkpoints
    const fence = { job: id, epoch, lease: lease_id };
    const saved = await sql.query("select result from stillwake.save_checkpoints($1)", [
      JSON.stringify([{ ...fence, step: "s", output: 1 }]),
    ]);
    expect(saved.rows).toEqual([{ result: "saved" }]);
    const loaded = await sql.query("select epoch from stillwake.load_checkpoints($1, $2, $3)", [id, epoch, lease_id]);
    expect(loaded.rows).toEqual([{ epoch }]);
    passed("checkpoints");

    // logs
    const logged = await sql.query("select last_seq from stillwake.append_logs($1)", [
      JSON.stringify([{ ...fence, lines: [{ message: "a" }, { message: "b" }] }]),
    ]);
    expect(logged.rows).toEqual([{ last_seq: grown(2n) }]);
    const page = await sql.query("select seq, epoch from stillwake.logs where job_id = $1 and seq > $2 order by seq", [
      id,
      grown(1n),
    ]);
    expect(page.rows).toEqual([{ seq: grown(2n), epoch }]);
    await sql.query("select stillwake.progress($1, $2, $3, '{\"done\": 1}')", [id, epoch, lease_id]);
    passed("logs and progress");

    // client
    expect((await stillwake.get(id)).epoch).toBe(epoch);
    passed("client.get");

    // settle, with a neighbouring epoch first, which is another attempt
    const settle = async (settlement: object) =>
      (await sql.query("select state from stillwake.settle($1)", [JSON.stringify([settlement])])).rows[0].state;
    expect(await settle({ ...fence, epoch: grown(0n), outcome: "completed" })).toBe("lost");
    expect(await settle({ ...fence, epoch: grown(2n), outcome: "completed" })).toBe("lost");
    expect(await settle({ ...fence, outcome: "failed", failure: { message: "x" } })).toBe("queued");
    passed("settle");

    // settle_and_claim, through the typed call: twice, so that its results are valid arguments
    let next = await settleAndClaim(stillwake.database, [], request);
    expect(next.claimed[0]).toMatchObject({ job_id: id, epoch: grown(2n) });
    expect(next.claimed[0]!.epoch).toBeTypeOf("string");
    const released = {
      job: id,
      epoch: next.claimed[0]!.epoch,
      lease: next.claimed[0]!.lease_id,
      outcome: "released" as const,
    };
    next = await settleAndClaim(stillwake.database, [JSON.stringify({ ...released, epoch: grown(1n) })], {
      ...request,
      pipelines: [],
    });
    expect(next).toEqual({ refused: [id], claimed: [] });
    next = await settleAndClaim(stillwake.database, [JSON.stringify(released)], request);
    expect(next).toMatchObject({ refused: [], claimed: [{ job_id: id, epoch: grown(3n) }] });
    passed("settle_and_claim");

    // a lost lease
    await travel(sql, "2m");
    await sql.query("select stillwake.recover()");
    const again = await sql.query("select epoch, lease_id from stillwake.claim('w', 'default', '{report}', 1)");
    ({ epoch, lease_id } = again.rows[0]);
    expect(epoch).toBe(grown(4n));
    passed("recover");

    // settle by hand, and once more
    await sql.query("select stillwake.fail($1, $2, $3, '{}', true)", [id, epoch, lease_id]);
    await stillwake.retry(id);
    next = await settleAndClaim(stillwake.database, [], request);
    expect(next.claimed[0]!.epoch).toBe(grown(5n));
    await sql.query("select stillwake.complete($1, $2, $3)", [id, next.claimed[0]!.epoch, next.claimed[0]!.lease_id]);
    expect(await stillwake.get(id)).toMatchObject({ state: "completed", epoch: grown(5n) });
    passed("complete, fail and retry");

    const attempts = await sql.query("select epoch from stillwake.attempts where job_id = $1 order by epoch", [id]);
    expect(attempts.rows.map((row) => row.epoch)).toEqual([1n, 2n, 3n, 4n, 5n].map(grown));
    const feed = await sql.query("select seq from stillwake.feed where job_id = $1 order by seq", [id]);
    expect(feed.rows.map(({ seq }) => seq)).toEqual(feed.rows.map((_, index) => grown(BigInt(index + 1))));
    passed("attempts and feed");
  });
});

function passed(path: string): void {
  paths.add(path);
}
