// Senders are killed with SIGKILL at every point of a delivery. No webhook is lost, and a repeated one has the same id and bytes.
import { spawn } from "node:child_process";
import { once } from "node:events";
import path from "node:path";
import { beforeAll, describe, expect, it, onTestFinished } from "vitest";
import { pipeline } from "../../src/index.ts";
import { travel } from "../../src/testing/index.ts";
import type { SendMoment } from "../../src/worker/index.ts";
import { connectedDatabase } from "../support/database/connections.ts";
import { type Received, startReceiver } from "../support/fakes/webhook-receiver.ts";
import { recordFigure } from "../support/figures.ts";
import { buildPackage, ROOT } from "../support/processes/build.ts";
import { FULL } from "../support/processes/fault-checks.ts";

const { database, stillwake, client } = await connectedDatabase();
const moments: SendMoment[] = ["claiming", "claimed", "written", "answered", "recorded"];

beforeAll(async () => {
  buildPackage();
  await stillwake.register(pipeline("task"));
});

/** Runs a sender in a separate process; returns how it exited. */
async function run(moment: SendMoment | "never", times = 1): Promise<number | string> {
  const { PATH = "" } = process.env;
  const args = [path.join(ROOT, "test/fixtures/webhook-sender.mjs"), database.url, moment, String(times)];
  const child = spawn(process.execPath, args, { env: { PATH }, stdio: ["ignore", "inherit", "inherit"] });
  onTestFinished(() => void child.kill("SIGKILL"));
  const [code, signal] = await once(child, "exit");
  return signal ?? code;
}

async function endedJobs(count: number, webhook: string): Promise<string[]> {
  const jobs = (await stillwake.enqueueMany("task", Array(count).fill({}), { webhook })).map(({ id }) => id);
  await client.query("select stillwake.cancel(i) from unnest($1::uuid[]) i", [jobs]);
  return jobs;
}

/** The number of repeated webhooks; each has the id and bytes of the first. */
function duplicates(received: Received[]): number {
  const byJob = new Map<string, Received[]>();
  for (const one of received) {
    const job = JSON.parse(one.body).data.id as string;
    byJob.set(job, [...(byJob.get(job) ?? []), one]);
  }
  for (const all of byJob.values()) {
    expect(new Set(all.map(({ id }) => id)).size).toBe(1);
    expect(new Set(all.map(({ body }) => body)).size).toBe(1);
  }
  return received.length - byJob.size;
}

describe("a killed sender", () => {
  it.each(moments)("at the point %j loses nothing", async (moment) => {
    const receiver = await startReceiver();
    const [job] = await endedJobs(1, receiver.url);
    expect(await run(moment)).toBe("SIGKILL");
    // The claims of a dead sender expire.
    await travel(client, "2m");
    expect(await run("never")).toBe(0);
    const [hook] = await stillwake.webhooks.list({ job: job! });
    expect(hook).toMatchObject({ state: "delivered" });
    const twice = duplicates(receiver.received);
    expect(receiver.received.length).toBeGreaterThanOrEqual(1);
    expect(twice).toBeLessThanOrEqual(moment === "written" || moment === "answered" ? 1 : 0);
    if (moment === "answered") expect(twice).toBe(1);
    // The number of the unrecorded delivery is missing.
    const tried = moment === "claiming" || moment === "recorded" ? "1" : "2";
    expect(hook!.deliveries.map(({ n }) => n)).toEqual([tried]);
  });

  it("loses none of many webhooks when senders are killed repeatedly at any point", async () => {
    const receiver = await startReceiver();
    const count = FULL ? 1000 : 120;
    const kills = FULL ? 40 : 8;
    const jobs = await endedJobs(count, receiver.url);
    let killed = 0;
    for (let n = 0; n < kills; n++) {
      const ended = await run(moments[n % moments.length]!, 1 + Math.floor(Math.random() * 12));
      killed += Number(ended === "SIGKILL");
      await travel(client, "2m");
    }
    for (let n = 0; n < 20 && (await pending()) > 0; n++) {
      await run("never");
      await travel(client, "2m");
    }
    const { rows } = await client.query(
      "select state, count(*)::int as n from stillwake.webhooks where job_id = any ($1) group by 1",
      [jobs],
    );
    expect(rows).toEqual([{ state: "delivered", n: count }]);
    expect(new Set(receiver.received.map(({ body }) => JSON.parse(body).data.id))).toEqual(new Set(jobs));
    const note = `${count} webhooks, ${killed} senders killed`;
    recordFigure("webhooks lost", count - new Set(receiver.received.map(({ id }) => id)).size, "", note);
    recordFigure("webhooks sent twice", duplicates(receiver.received), "", note);
  }, 240_000);
});

async function pending(): Promise<number> {
  const { rows } = await client.query("select count(*)::int as n from stillwake.webhooks where state = 'pending'");
  return rows[0].n;
}
