// A server that shuts down can accept a connection and end it in the same packet. The client must handle errors of a
// connection from its creation on; otherwise the error is uncaught and the process exits.
import { once } from "node:events";
import net from "node:net";
import pg from "pg";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { createStillwake } from "../../src/index.ts";
import { inTransaction } from "../../src/worker/attempt/tx-step.ts";

let server: net.Server;
let url: string;
let accepted = 0;
const loose: unknown[] = [];
const note = (error: unknown) => loose.push(error);

beforeAll(async () => {
  server = net.createServer((socket) => {
    socket.on("error", () => {});
    socket.once("data", () => {
      accepted += 1;
      socket.end(Buffer.concat([AUTHENTICATED, READY, GOING_DOWN]));
    });
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  url = `postgres://nobody@127.0.0.1:${(server.address() as net.AddressInfo).port}/none`;
  process.on("uncaughtException", note);
});
afterAll(() => {
  process.off("uncaughtException", note);
  server.close();
});

function message(type: string, body: Buffer): Buffer {
  const length = Buffer.alloc(4);
  length.writeInt32BE(body.length + 4);
  return Buffer.concat([Buffer.from(type), length, body]);
}

const AUTHENTICATED = message("R", Buffer.from([0, 0, 0, 0]));
const READY = message("Z", Buffer.from("I"));
const text = "SFATAL\0VFATAL\0C57P01\0Mterminating connection due to administrator command\0\0";
const GOING_DOWN = message("E", Buffer.from(text));

describe("a server that accepts and ends a connection in one packet", () => {
  it("is an outage for the client and does not crash its process", async () => {
    const stillwake = createStillwake({ url, retryTimeout: "500ms" });
    await expect(stillwake.pipelines()).rejects.toMatchObject({ code: "DATABASE_UNAVAILABLE" });
    await expect(stillwake.tenant("acme").pipelines()).rejects.toMatchObject({ code: "DATABASE_UNAVAILABLE" });
    await stillwake.close();
    expect(accepted).toBeGreaterThan(1);
    expect(loose).toEqual([]);
  });

  it("fails the user's transaction, and nothing else", async () => {
    const pool = new pg.Pool({ connectionString: url });
    pool.on("error", () => {});
    await expect(inTransaction(pool, async () => {})).rejects.toThrow();
    await pool.end();
    expect(loose).toEqual([]);
  });
});
