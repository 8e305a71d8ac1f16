import type pg from "pg";
import { afterAll, beforeAll, expect, it } from "vitest";
import { createStillwake, pipeline } from "../src/index.ts";
import { travel } from "../src/testing/index.ts";
import { createSender } from "../src/worker/index.ts";
import { connect } from "./setup/aftermath.ts";
import { freshDatabase } from "./setup/database.ts";
import { HERE, startReceiver, status } from "./setup/receiver.ts";
const database = await freshDatabase();
const sw = createStillwake({ url: database.url });
let client: pg.Client;
beforeAll(async () => { client = await connect(database.url); await sw.register(pipeline("task")); await sw.register(pipeline("keyed", { onConflict: "join" } as never)); });
afterAll(async () => { await client.end(); await sw.close(); });
const q = async (t: string, v: unknown[] = [], c = client) => (await c.query(t, v)).rows;
const log = (...a: unknown[]) => console.log("ZZ", ...a.map((x) => typeof x === "string" ? x : JSON.stringify(x)));
async function end(id: string, pl = "task", failure?: unknown, output: unknown = { a: 1 }) {
  const [job] = await q(`select * from stillwake.claim('t','default','{${pl}}',1)`);
  expect(job.job_id).toBe(id);
  if (failure) await q("select stillwake.fail($1,$2,$3,$4,true)", [id, job.epoch, job.lease_id, JSON.stringify(failure)]);
  else await q("select stillwake.complete($1,$2,$3,$4)", [id, job.epoch, job.lease_id, JSON.stringify(output)]);
}
it("A moved endpoint", async () => {
  const oldr = await startReceiver(status(410)); const newr = await startReceiver(status(204));
  await sw.webhooks.set("mv", { url: oldr.url + "/old" });
  const s = createSender({ url: database.url, ...HERE });
  const ids: string[] = [];
  for (let i = 0; i < 3; i++) { const { id } = await sw.enqueue("task", {}, { webhook: { endpoint: "mv" } }); await end(id); ids.push(id); }
  await s.flush();
  log("after 410", (await sw.webhooks.endpoints()).find((e) => e.name === "mv"), (await sw.webhooks.list({ endpoint: "mv" })).map((w) => [w.state, w.attempts]));
  await sw.webhooks.set("mv", { url: newr.url + "/new" });
  await sw.webhooks.enable("mv");
  await s.flush();
  const l = await sw.webhooks.list({ endpoint: "mv" });
  log("after move+enable", l.map((w) => [w.state, w.url.slice(-4)]), "new got", newr.received.length, "old got", oldr.received.length);
  await sw.webhooks.resend(l[0]!.id); await s.flush();
  log("after resend", (await sw.webhooks.list({ endpoint: "mv" })).map((w) => w.state), "new got", newr.received.length);
  await s.stop();
});
it("B headers exfiltrated", async () => {
  const evil = await startReceiver(status(204));
  await sw.webhooks.set("bill", { url: "https://billing.example.com/x", headers: { "x-api-key": "TOPSECRET" } });
  const { id } = await sw.enqueue("task", {}, { webhook: { endpoint: "bill", url: evil.url } }); await end(id);
  const s = createSender({ url: database.url, ...HERE }); await s.flush(); await s.stop();
  log("evil got header", evil.received[0]?.headers["x-api-key"], evil.received[0]?.headers["webhook-signature"]);
});
it("C rotate after clock set back", async () => {
  await sw.webhooks.set("rot", { url: "https://rot.example.com/x" });
  const a = await sw.webhooks.rotate("rot");
  await travel(client, "-2h" as never);
  const b = await sw.webhooks.rotate("rot");
  log("a,b", a.secret.slice(0, 10), b.secret.slice(0, 10), await q("select left(secret,10) s, created_at, expires_at from stillwake.endpoint_secrets where endpoint='rot' order by created_at desc"));
  const c = await sw.webhooks.rotate("rot");
  log("c", c.secret.slice(0, 10), "current b must still sign:", await q("select left(secret,10) s, expires_at from stillwake.endpoint_secrets where endpoint='rot' order by created_at desc"));
  await travel(client, "2h");
});
it("D join+webhook vs settle deadlock", async () => {
  const c2 = await connect(database.url); const c3 = await connect(database.url);
  const { id } = await sw.enqueue("keyed", {}, { key: "k", webhook: "https://a.example.com/" });
  const [job] = await q("select * from stillwake.claim('t','default','{keyed}',1)");
  // someone joins in a transaction, then enqueues another key... ; settle meanwhile
  await c2.query("begin");
  await c2.query(`select stillwake.enqueue('keyed','{}','{"key":"k","on_conflict":"join","webhook":"https://b.example.com/"}')`);
  const settled = c3.query("select stillwake.complete($1,$2,$3,null)", [id, job.epoch, job.lease_id]).then((r) => r.rows[0], (e) => "ERR " + e.code);
  await new Promise((r) => setTimeout(r, 300));
  log("settle while a join is open blocks:", await q("select count(*) from pg_stat_activity where wait_event_type='Lock' and datname=current_database()"));
  const second = await c2.query(`select stillwake.enqueue('keyed','{}','{"key":"k","on_conflict":"wait"}')`).then(() => "ok", (e) => "ERR " + e.code);
  const commit = await c2.query("commit").then(() => "ok", (e) => "ERR " + e.code);
  log("second", second, "commit", commit, "settled", await settled);
  await c2.end(); await c3.end();
  await q("delete from stillwake.leases"); await q("delete from stillwake.live_jobs");
});
it("E schedule with a key held by an open transaction stalls a claim", async () => {
  const c2 = await connect(database.url);
  await c2.query("begin");
  await c2.query(`select stillwake.enqueue('keyed','{}','{"key":"cust"}')`);
  await q(`select stillwake.set_schedule('s1','{"cron":"* * * * *","pipeline":"keyed","options":{"key":"cust"}}')`);
  const plain = await sw.enqueue("task", {});
  await travel(client, "61s");
  await client.query("set statement_timeout='4s'");
  const t = performance.now();
  const r = await client.query("select job_id from stillwake.claim('t','default','{task,keyed}',5)").then((x) => x.rows, (e) => "ERR " + e.code + " " + e.message);
  log("claim of plain job", plain.id, r, Math.round(performance.now() - t), "ms");
  await client.query("set statement_timeout=0");
  await c2.query("rollback"); await c2.end();
  log(await q("select due_at, next_slot, last_error from stillwake.schedules"));
  await q("select stillwake.remove_schedule('s1')");
  await q("delete from stillwake.leases"); await q("delete from stillwake.live_jobs");
});
it("F onSent throws", async () => {
  const r = await startReceiver(status(204));
  await sw.webhooks.set("os", { url: r.url });
  const { id } = await sw.enqueue("task", {}, { webhook: { endpoint: "os" } }); await end(id);
  const un: unknown[] = []; const h = (e: unknown) => un.push(String(e));
  const old = process.listeners("unhandledRejection"); process.removeAllListeners("unhandledRejection"); process.on("unhandledRejection", h);
  const s = createSender({ url: database.url, ...HERE, onSent: () => { throw new Error("user bug"); } });
  await s.flush(2000); await new Promise((r) => setTimeout(r, 200));
  process.removeListener("unhandledRejection", h); for (const o of old) process.on("unhandledRejection", o as never);
  log("unhandled", un); await s.stop();
});
it("G thin code leak, left_out", async () => {
  await sw.webhooks.set("thin", { url: "https://thin.example.com/" });
  const { id } = await sw.enqueue("task", {}, { webhook: { endpoint: "thin" } });
  await end(id, "task", { name: "E", message: "m", code: "password=hunter2 for postgres://u:p@db/x" });
  log((await sw.webhooks.list({ job: id }))[0]!.body);
  await sw.webhooks.set("tpl", { url: "https://tpl.example.com/", body: { url: "$output.url", input: "$input" } });
  const big = await sw.enqueue("task", { t: "x".repeat(30000) }, { webhook: { endpoint: "tpl" } });
  await end(big.id, "task", undefined, { url: "https://small" });
  log((await sw.webhooks.list({ job: big.id }))[0]!.body);
});
it("H resend in last try", async () => {
  await sw.webhooks.set("re", { url: "https://re.example.com/" });
  const { id } = await sw.enqueue("task", {}, { webhook: { endpoint: "re" } }); await end(id);
  const w = (await sw.webhooks.list({ job: id }))[0]!;
  await q("update stillwake.webhooks set attempts=9 where id=$1", [w.id]);
  const [c] = await q("select * from stillwake.claim_webhooks('me', 1000) where id=$1", [w.id]);
  await sw.webhooks.resend(w.id);
  log("settled after resend", await q("select * from stillwake.settle_webhooks($1)", [JSON.stringify([{ id: w.id, epoch: c.epoch, sender: "me", error: "TIMEOUT" }])]));
});
it("I cron truncated", async () => {
  const cron = "0 0 * * " + "1,".repeat(246) + "5"; // 501 letters
  log(cron.length, await q("select (stillwake.read_cron($1)).weekdays", [cron]).catch((e) => e.message.slice(0, 100)), await q("select (stillwake.read_cron($1)).weekdays", ["0 0 * * 1,5"]));
});
it("J many lanes", async () => {
  await q("delete from stillwake.webhooks");
  for (const n of [20000]) {
    await q(`insert into stillwake.webhooks (id,endpoint,url,lane,job_id,event,body,created_at,next_at,attempts) select 'msg_'||md5(i::text),'default','https://h'||i||'.example.com/','default h'||i||'.example.com',gen_random_uuid(),'job.completed','{}',stillwake.now(),stillwake.now()+interval '5 hours',3 from generate_series(1,$1) i`, [n]);
    await q("analyze stillwake.webhooks");
    for (let k = 0; k < 2; k++) {
      let t = performance.now(); await q("select * from stillwake.claim_webhooks('x',50)"); const a = performance.now() - t;
      t = performance.now(); await q("select stillwake.webhooks_due()"); log(n, "lanes: claim", Math.round(a), "due", Math.round(performance.now() - t));
    }
  }
  await q("delete from stillwake.webhooks");
}, 60000);
it("K slots cost", async () => {
  for (const [cron, zone] of [["* * * * *", "Europe/Berlin"], ["*/5 8-18 * * mon-fri", "Europe/Berlin"], ["0 0 29 2 *", "UTC"]]) {
    const t = performance.now(); const r = await q("select count(*) from stillwake.upcoming($1,$2,2000)", [cron, zone]);
    log(cron, "2000 slots", Math.round(performance.now() - t), "ms", r);
  }
}, 60000);
