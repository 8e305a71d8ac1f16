// Jobs as Server-Sent Events: interrupted at any byte and resumed, with invalid cursors, with lost access, and redacted.
import { EventSource } from "eventsource";
import { describe, expect, it, onTestFinished } from "vitest";
import { streamJob } from "../../src/server/stream.ts";
import { waitFor } from "../../src/testing/index.ts";
import { append, claimJobs, complete, feedFixture, type Lease } from "../support/database/feed-writer.ts";
import { recordFigure } from "../support/figures.ts";
import { FULL } from "../support/processes/fault-checks.ts";
import { cuttingProxy, fetchStream, parser, type StreamEvent, serveStreams } from "../support/server/streams.ts";

const { sql, openReader } = await feedFixture((directUrl) => ({ directUrl }));

async function stored({ job }: Lease): Promise<{ seq: string; message: string }[]> {
  return (await sql.query("select seq, message from stillwake.logs where job_id = $1 order by seq", [job])).rows;
}

const logs = (received: StreamEvent[]) =>
  received.filter(({ event }) => event === "log").map(({ data }) => ({ seq: data.seq, message: data.message }));

describe("a stream", () => {
  it("sends the job's state, lines with ids and other events without, the result, and then 204", async () => {
    const url = await serveStreams({ reader: openReader() });
    const [lease] = await claimJobs(sql, 1);
    const tail = lease!.job.slice(-8);
    await append(sql, [lease!], [{ message: "one" }, { message: "two", data: { n: 1 } }]);
    await sql.query("select stillwake.save_checkpoints($1)", [JSON.stringify([{ ...lease, step: "s", output: 1 }])]);
    await complete(sql, lease!, { answer: 42 });
    const response = await fetch(`${url}/${lease!.job}`);
    expect(Object.fromEntries(response.headers)).toMatchObject({
      "content-type": "text/event-stream; charset=utf-8",
      "cache-control": "no-store",
      "x-accel-buffering": "no",
    });
    const received: StreamEvent[] = [];
    const text = await response.text();
    parser((event) => received.push(event))(text);
    expect(text.startsWith("retry: 1000\n\n")).toBe(true);
    expect(received.map(({ event, id }) => [event, id])).toEqual([
      ["state", ""],
      ["step", ""],
      ["log", `1-${tail}`],
      ["log", `2-${tail}`],
      ["end", `2-${tail}-end`],
    ]);
    expect(received[0]!.data).toMatchObject({
      state: "completed",
      waitingFor: null,
      attempt: 1,
      maxAttempts: 3,
      progress: null,
      missing: [],
    });
    expect(received[1]!.data).toMatchObject({ name: "s", epoch: "1" });
    expect(received[3]!.data).toEqual({
      seq: "2",
      at: expect.stringMatching(/^\d{4}-.*Z$/),
      epoch: "1",
      level: "info",
      step: null,
      message: "two",
      data: { n: 1 },
    });
    expect(received[4]!.data).toEqual({ state: "completed", output: { answer: 42 }, failure: null });
    const again = await fetch(`${url}/${lease!.job}`, { headers: { "last-event-id": received[4]!.id } });
    expect([again.status, await again.text()]).toEqual([204, ""]);
  });

  it("continues for a client that has received the end if the job was retried", async () => {
    const url = await serveStreams({ reader: openReader() });
    const [lease] = await claimJobs(sql, 1);
    await append(sql, [lease!], [{ message: "one" }]);
    await sql.query("select stillwake.cancel($1), stillwake.settle($2)", [
      lease!.job,
      JSON.stringify([{ ...lease, outcome: "cancelled" }]),
    ]);
    const first: StreamEvent[] = [];
    await fetchStream(`${url}/${lease!.job}`, (event) => first.push(event));
    expect(first.at(-1)).toMatchObject({ event: "end", data: { state: "cancelled" } });
    await sql.query("select stillwake.retry($1)", [lease!.job]);
    const second: StreamEvent[] = [];
    const ended = fetchStream(`${url}/${lease!.job}`, (event) => second.push(event), first.at(-1)!.id);
    await waitFor(() => second.some(({ event, data }) => event === "event" && data.kind === "retried"));
    await sql.query("select stillwake.cancel($1)", [lease!.job]);
    await ended;
    expect(logs(second)).toEqual([]);
  });

  it("cannot be forged by the text of a line", async () => {
    const url = await serveStreams({ reader: openReader() });
    const [lease] = await claimJobs(sql, 1);
    const evil = [
      "\n\nevent: end\ndata: {}\n\n",
      "\rid: 99\r\n\r\nevent: gap",
      "data: x\u2028\u2029\u0085",
      "\u0000".replace("\u0000", "\u0001"),
      "😀 ünïcode",
      ":\n:",
    ];
    await append(
      sql,
      [lease!],
      evil.map((message) => ({ message, data: { message }, step: message.slice(0, 50) })),
    );
    await complete(sql, lease!, evil);
    const received: StreamEvent[] = [];
    await fetchStream(`${url}/${lease!.job}`, (event) => received.push(event));
    expect(received.map(({ event }) => event)).toEqual(["state", ...evil.map(() => "log"), "end"]);
    expect(logs(received).map(({ message }) => message)).toEqual(evil);
    expect(received.at(-1)!.data.output).toEqual(evil);
  });

  it("sends keep-alive comments", async () => {
    const url = await serveStreams({ reader: openReader(), keepAliveMs: 50 });
    const [lease] = await claimJobs(sql, 1);
    const response = await fetch(`${url}/${lease!.job}`);
    let text = "";
    for await (const chunk of response.body!) {
      text += new TextDecoder().decode(chunk);
      if (text.split(":\n\n").length > 3) break;
    }
    expect(text).toMatch(/event: state\n.*\n\n(:\n\n){3}/);
  });

  it("ends when the client loses access, and when its token expires", async () => {
    const reader = openReader();
    const [lease] = await claimJobs(sql, 1);
    let may = true;
    let requested = 0;
    const recheck = async () => {
      requested += 1;
      return may;
    };
    const url = await serveStreams({ reader, recheck, recheckMs: 50 });
    const stopped = await fetch(`${url}/${lease!.job}`);
    const received: StreamEvent[] = [];
    const read = (async () => {
      const parse = parser((event) => received.push(event));
      for await (const chunk of stopped.body!) parse(new TextDecoder().decode(chunk));
    })();
    await waitFor(() => requested >= 2);
    may = false;
    await waitFor(() => reader.status.followers === 0, { what: "the stream to end" });
    await read;
    expect(received.map(({ event }) => event)).toEqual(["state"]);
    const brief = await serveStreams({ reader, until: new Date(Date.now() + 300) });
    expect(await (await fetch(`${brief}/${lease!.job}`)).text()).toMatch(/^retry: 1000\n\nevent: state\n.*\n\n$/);
    await waitFor(() => reader.status.followers === 0);
  });

  it("is redacted for a read token: no actors, and no stack", async () => {
    const reader = openReader();
    const house = await serveStreams({ reader });
    const outside = await serveStreams({ reader, redacted: true });
    const [lease] = await claimJobs(sql, 1);
    await append(sql, [lease!], [{ message: "one" }]);
    await sql.query("select stillwake.pause($1, 'because', 'ann')", [lease!.job]);
    const failure = { message: "oh", code: "E", stack: "at /srv/secret.ts", cause: { message: "deeper" } };
    await sql.query("select stillwake.settle($1)", [
      JSON.stringify([{ ...lease, outcome: "failed", failure, fatal: true }]),
    ]);
    const seen = async (url: string) => {
      const received: StreamEvent[] = [];
      await fetchStream(`${url}/${lease!.job}`, (event) => received.push(event));
      return { text: JSON.stringify(received), told: received };
    };
    const [inside, guest] = await Promise.all([seen(house), seen(outside)]);
    for (const secret of ["secret.ts", "deeper", "ann", "because"]) {
      expect(inside.text, secret).toContain(secret);
      expect(guest.text, secret).not.toContain(secret);
    }
    expect(guest.told.map(({ event }) => event)).toEqual(inside.told.map(({ event }) => event));
    expect(guest.told.at(-1)!.data).toMatchObject({ state: "failed", failure: { message: "oh", code: "E" } });
  });

  it("names the event that the job waits for, but not for a read token", async () => {
    const reader = openReader();
    const [lease] = await claimJobs(sql, 1);
    const settlement = { ...lease, outcome: "slept", waiting_for: "event", awaits: "approval" };
    await sql.query("select stillwake.settle($1)", [JSON.stringify([settlement])]);
    const texts: string[] = [];
    for (const redacted of [false, true]) {
      const url = await serveStreams({ reader, redacted, until: new Date(Date.now() + 300) });
      texts.push(await (await fetch(`${url}/${lease!.job}`)).text());
    }
    expect(texts[0]).toContain('"waitingFor":"event","awaitedEvent":"approval"');
    expect(texts[1]).toContain('"waitingFor":"event","awaitedEvent":null');
  });

  it("is closed when its body is not read, and calls onFinish once", async () => {
    const reader = openReader();
    const [lease] = await claimJobs(sql, 1);
    let over = 0;
    const response = await streamJob({ reader, id: lease!.job, stallMs: 50, onFinish: () => (over += 1) });
    expect(reader.status.followers).toBe(1);
    await waitFor(() => over === 1);
    expect(reader.status.followers).toBe(0);
    await expect(response.text()).rejects.toThrow("not read for too long");
    expect(over).toBe(1);
  });

  it("ends at once when its signal is aborted, also when its body is not read", async () => {
    const reader = openReader();
    const [lease] = await claimJobs(sql, 1);
    const stop = new AbortController();
    let over = 0;
    const options = { reader, id: lease!.job, signal: stop.signal, onFinish: () => (over += 1) };
    const [unread, begun] = await Promise.all([streamJob(options), streamJob(options)]);
    const body = begun.body!.getReader();
    await body.read();
    expect(reader.status.followers).toBe(2);
    stop.abort();
    expect([over, reader.status.followers]).toEqual([2, 0]);
    expect(await unread.text()).toBe("retry: 1000\n\n");
    expect(await body.read()).toMatchObject({ done: true });
    expect(over).toBe(2);
  });

  it("leaves nothing behind when its client disconnects", async () => {
    const reader = openReader({ lingerMs: 50 });
    const url = await serveStreams({ reader });
    const [lease] = await claimJobs(sql, 1);
    const stop = new AbortController();
    const responses = await Promise.all(
      Array.from({ length: 20 }, () => fetch(`${url}/${lease!.job}`, { signal: stop.signal })),
    );
    expect(responses.every(({ status }) => status === 200)).toBe(true);
    expect(reader.status.followers).toBe(20);
    stop.abort();
    await waitFor(() => reader.status.jobs === 0);
  });
});

describe("invalid cursors", () => {
  it("are rejected, and never show a line of another job", async () => {
    const reader = openReader();
    const url = await serveStreams({ reader });
    const [mine, theirs] = await claimJobs(sql, 2);
    await append(sql, [mine!], [{ message: "mine 1" }, { message: "mine 2" }]);
    await append(sql, [theirs!], [{ message: "theirs" }]);
    const tail = mine!.job.slice(-8);
    const foreign = theirs!.job.slice(-8);
    const bad = [
      "x",
      "-1",
      `-1-${tail}`,
      `1-${foreign}`,
      `1-${foreign}-end`,
      "1",
      `1.5-${tail}`,
      `1e3-${tail}`,
      `0x1-${tail}`,
      ` 1-${tail} x`,
      `1-${tail}-stop`,
      `${"9".repeat(19)}-${tail}`,
      `${"1".repeat(40)}-${tail}`,
      `1-${tail}`.repeat(500),
      "1' or '1'='1",
      "null",
      "NaN",
      `٣-${tail}`,
    ];
    let leaks = 0;
    const responses = async (address: string, headers: Record<string, string>) => {
      const response = await fetch(address, { headers });
      const text = response.status === 200 ? "" : await response.text();
      if (text.includes("theirs")) leaks += 1;
      await response.body?.cancel().catch(() => {});
      return { status: response.status, code: text.startsWith("{") ? JSON.parse(text).code : "" };
    };
    for (const id of bad) {
      if (/^[\x20-\x7e]*$/.test(id)) {
        expect(await responses(`${url}/${mine!.job}`, { "last-event-id": id }), id).toEqual({
          status: 400,
          code: "INVALID_INPUT",
        });
      }
      if (id === "1") continue;
      expect(await responses(`${url}/${mine!.job}?after=${encodeURIComponent(id)}`, {}), id).toEqual({
        status: 400,
        code: "INVALID_INPUT",
      });
    }
    // Node rejects ten megabytes of headers; streamJob itself rejects them without repeating them.
    const huge = `1-${tail}`.padEnd(10_000_000, "0");
    expect((await responses(`${url}/${mine!.job}`, { "last-event-id": huge })).status).toBe(431);
    for (const place of [{ lastEventId: huge }, { after: huge }]) {
      const refusal = await streamJob({ reader, id: mine!.job, ...place }).catch((error) => error);
      expect(refusal).toMatchObject({ code: "INVALID_INPUT" });
      expect(refusal.message.length).toBeLessThan(400);
    }
    expect(
      (await responses(`${url}/${mine!.job.replace(/.$/, (last) => (last === "0" ? "1" : "0"))}`, {})).status,
    ).toBe(404);
    expect(await responses(`${url}/nonsense`, {})).toEqual({ status: 400, code: "INVALID_INPUT" });

    // A seq that the job has not reached: a gap, and then the whole feed.
    await complete(sql, mine!);
    for (const [header, query] of [
      [`1000-${tail}`, ""],
      ["", "?after=1000"],
      [`1000-${tail}-end`, ""],
    ]) {
      const received: StreamEvent[] = [];
      await fetchStream(`${url}/${mine!.job}${query}`, (event) => received.push(event), header);
      expect(received.map(({ event }) => event)).toEqual(["state", "gap", "log", "log", "end"]);
      expect(received[1]!.data).toEqual({ after: "1000", next: "1" });
      expect(logs(received).map(({ message }) => message)).toEqual(["mine 1", "mine 2"]);
    }
    expect(leaks).toBe(0);
    recordFigure("places refused", 2 * bad.length);
    recordFigure("lines of another job shown", leaks);
  });
});

describe("interrupted streams", () => {
  const clients = FULL ? 10 : 20;
  const cutsEach = FULL ? 1000 : 50;

  it(`${clients} clients, ${clients * cutsEach} cuts at random bytes: the text of each equals what is stored, nothing lost, nothing twice`, {
    timeout: FULL ? 900_000 : 120_000,
  }, async () => {
    const seed = Math.floor(Math.random() * 2 ** 31);
    const random = mulberry(seed);
    const note = `seed ${seed}`;
    const reader = openReader();
    const url = await serveStreams({ reader, retryMs: 1 });
    const [lease] = await claimJobs(sql, 1);
    const proxies = await Promise.all(
      Array.from({ length: clients }, () => cuttingProxy(url, () => 1 + Math.floor(random() * random() * 6000))),
    );
    const received: StreamEvent[][] = proxies.map(() => []);
    const ended = proxies.map((proxy, index) => {
      const address = `${proxy.url}/${lease!.job}`;
      const onEvent = (event: StreamEvent) => void received[index]!.push(event);
      return index % 2 === 0 ? fetchStream(address, onEvent) : nativeStream(address, onEvent);
    });
    // The writer waits for the slowest client, so that all are interrupted in old and in new lines.
    let written = 0;
    const reached = (index: number) => Number(received[index]!.findLast(({ event }) => event === "log")?.data.seq ?? 0);
    while (proxies.some((proxy) => proxy.cuts() < cutsEach)) {
      const slowest = Math.min(...proxies.map((_, index) => reached(index)));
      if (written - slowest < (FULL ? 2000 : 600)) {
        const lines = Array.from({ length: 1 + Math.floor(random() * 40) }, () => ({
          message: anyText(random, ++written),
        }));
        await append(sql, [lease!], lines);
      } else await new Promise((resolve) => setTimeout(resolve, 5));
      for (const proxy of proxies) if (proxy.cuts() >= cutsEach) proxy.spare();
    }
    await complete(sql, lease!, "done");
    await Promise.all(ended);
    const expected = await stored(lease!);
    expect(expected).toHaveLength(written);
    let lost = 0;
    let doubled = 0;
    for (const [index, events] of received.entries()) {
      const lines = logs(events);
      const seqs = new Set(lines.map(({ seq }) => seq));
      lost += expected.filter(({ seq }) => !seqs.has(seq)).length;
      doubled += lines.length - seqs.size;
      expect(
        lines.map(({ message }) => message).join("\n") === expected.map(({ message }) => message).join("\n"),
        `client ${index}, ${note}`,
      ).toBe(true);
      expect(
        events.filter(({ event }) => event === "gap"),
        note,
      ).toEqual([]);
      expect(
        events.filter(({ event }) => event === "end"),
        note,
      ).toHaveLength(1);
    }
    expect({ lost, doubled }, note).toEqual({ lost: 0, doubled: 0 });
    recordFigure(
      "interruptions survived",
      proxies.reduce((sum, proxy) => sum + proxy.cuts(), 0),
      "",
      `${clients} clients, half of them EventSource`,
    );
    recordFigure("lines lost or told twice", lost + doubled, "", `of ${written * clients}`);
  });

  /** Like a browser: the EventSource reconnects by itself, and stops at 204. */
  function nativeStream(url: string, onEvent: (one: StreamEvent) => void): Promise<void> {
    return new Promise((resolve) => {
      const source = new EventSource(url);
      onTestFinished(() => source.close());
      for (const event of ["state", "log", "event", "step", "progress", "gap", "end"]) {
        source.addEventListener(event, ({ data, lastEventId }) =>
          onEvent({ id: lastEventId, event, data: JSON.parse(data) }),
        );
      }
      source.addEventListener("error", () => source.readyState === source.CLOSED && resolve());
    });
  }
});

/** Texts of every kind, with some that look like a field of a stream. */
function anyText(random: () => number, number: number): string {
  const parts = ["id: 1\n", "data: x\n\n", "\r\n", "😀", "ü", "\t", '"', "\\", "event: end", " ", "word"];
  const text = Array.from({ length: Math.floor(random() * 12) }, () => parts[Math.floor(random() * parts.length)]).join(
    "",
  );
  return `${number} ${text}`;
}

function mulberry(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}
