// Signatures, compared with the public implementation of Standard Webhooks in both directions.
import { Webhook } from "standardwebhooks";
import { afterAll, describe, expect, it } from "vitest";
import { InvalidWebhook, signWebhook, verifyWebhook } from "../../src/webhooks/index.ts";
import { recordFigure } from "../support/figures.ts";

const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const old = `whsec_${Buffer.alloc(64, 7).toString("base64")}`;
const stranger = `whsec_${Buffer.alloc(24, 9).toString("base64")}`;
const now = () => Math.floor(Date.now() / 1000);
const payload = { type: "job.completed", data: { id: "x", text: "üñí 💡" } };
const body = JSON.stringify(payload);

async function signed(
  secrets: string | string[] = secret,
  { id = "msg_1", at = now(), text = body } = {},
): Promise<Record<string, string>> {
  return {
    "webhook-id": id,
    "webhook-timestamp": String(at),
    "webhook-signature": await signWebhook(secrets, id, at, text),
  };
}

let passed = 0;
const vector = (name: string, check: () => Promise<unknown>) =>
  it(name, async () => {
    await check();
    passed += 1;
  });
afterAll(() => recordFigure("vectors passed", passed));

describe("signWebhook", () => {
  vector("is what the specification's own example says", async () => {
    // The example of the specification.
    const signature = await signWebhook(secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, '{"test": 2432232314}');
    expect(signature).toBe("v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
  });

  vector("is verified by the public verifier", async () => {
    expect(new Webhook(secret).verify(body, await signed())).toEqual(payload);
  });

  vector("is verified with either secret while one takes the place of the other, and not with a third", async () => {
    const headers = await signed([secret, old]);
    expect(headers["webhook-signature"]!.split(" ")).toHaveLength(2);
    for (const one of [secret, old]) expect(new Webhook(one).verify(body, headers)).toEqual(payload);
    expect(() => new Webhook(stranger).verify(body, headers)).toThrow("No matching signature");
  });

  vector("has no dot in its id", async () => {
    await expect(signWebhook(secret, "msg.1", now(), body)).rejects.toMatchObject({ field: "webhook-id" });
  });

  vector("is never made with a secret that is too short or too long", async () => {
    for (const bytes of [23, 65]) {
      const bad = `whsec_${Buffer.alloc(bytes).toString("base64")}`;
      await expect(signWebhook(bad, "msg_1", now(), body)).rejects.toMatchObject({ code: "INVALID_SECRET" });
    }
  });
});

describe("verifyWebhook", () => {
  const theirs = (at = new Date(), id = "msg_1", text = body) => ({
    "webhook-id": id,
    "webhook-timestamp": String(Math.floor(at.getTime() / 1000)),
    "webhook-signature": new Webhook(secret).sign(id, at, text),
  });

  vector("is what the public signer has signed, as text and as bytes", async () => {
    expect(await verifyWebhook(body, theirs(), secret)).toEqual(payload);
    expect(await verifyWebhook(new TextEncoder().encode(body), theirs(), [stranger, secret])).toEqual(payload);
  });

  vector("comes with the headers of fetch or of Node, in any case", async () => {
    const headers = theirs();
    expect(await verifyWebhook(body, new Headers(headers), secret)).toEqual(payload);
    const shouting = Object.fromEntries(Object.entries(headers).map(([name, value]) => [name.toUpperCase(), value]));
    expect(await verifyWebhook(body, shouting, secret)).toEqual(payload);
  });

  vector("takes a secret without its prefix, and two secrets of ours", async () => {
    expect(await verifyWebhook(body, theirs(), secret.slice(6))).toEqual(payload);
    expect(await verifyWebhook(body, await signed([stranger, old]), [secret, old])).toEqual(payload);
  });

  const refusals: [string, () => Promise<unknown>, string][] = [
    ["another secret", async () => verifyWebhook(body, theirs(), stranger), "webhook-signature"],
    ["one byte changed", async () => verifyWebhook(body.replace("x", "y"), theirs(), secret), "webhook-signature"],
    [
      "parsed and serialized again",
      async () => verifyWebhook(JSON.stringify(payload, null, 1), theirs(), secret),
      "webhook-signature",
    ],
    [
      "another id",
      async () => verifyWebhook(body, { ...theirs(), "webhook-id": "msg_2" }, secret),
      "webhook-signature",
    ],
    [
      "another time",
      async () => verifyWebhook(body, { ...theirs(), "webhook-timestamp": String(now() - 9) }, secret),
      "webhook-signature",
    ],
    ["an id with a dot", async () => verifyWebhook(body, theirs(new Date(), "msg.1"), secret), "webhook-id"],
    [
      "the dot moved from the timestamp into the id",
      async () => {
        const headers = theirs(new Date(), "msg_1");
        const moved = { ...headers, "webhook-id": `msg_1.${headers["webhook-timestamp"]}`, "webhook-timestamp": "" };
        return verifyWebhook(body, moved, secret);
      },
      "webhook-timestamp",
    ],
    [
      "six minutes old",
      async () => verifyWebhook(body, theirs(new Date(Date.now() - 360_000)), secret),
      "webhook-timestamp",
    ],
    [
      "six minutes early",
      async () => verifyWebhook(body, theirs(new Date(Date.now() + 360_000)), secret),
      "webhook-timestamp",
    ],
    [
      "a time that is none",
      async () => verifyWebhook(body, { ...theirs(), "webhook-timestamp": "now" }, secret),
      "webhook-timestamp",
    ],
    [
      "an endless time",
      async () => verifyWebhook(body, { ...theirs(), "webhook-timestamp": "1e99" }, secret),
      "webhook-timestamp",
    ],
    [
      "no signature",
      async () => verifyWebhook(body, { ...theirs(), "webhook-signature": "" }, secret),
      "webhook-signature",
    ],
    ["no id", async () => verifyWebhook(body, { "webhook-timestamp": "1" }, secret), "webhook-id"],
    [
      "a signature of another version",
      async () =>
        verifyWebhook(
          body,
          { ...theirs(), "webhook-signature": theirs()["webhook-signature"].replace("v1", "v2") },
          secret,
        ),
      "webhook-signature",
    ],
    [
      "a signature that is not base64",
      async () => verifyWebhook(body, { ...theirs(), "webhook-signature": "v1,%%%" }, secret),
      "webhook-signature",
    ],
    [
      "a truncated signature",
      async () =>
        verifyWebhook(body, { ...theirs(), "webhook-signature": theirs()["webhook-signature"].slice(0, 20) }, secret),
      "webhook-signature",
    ],
    [
      "a repeated header",
      async () => verifyWebhook(body, { ...theirs(), "webhook-id": ["msg_1", "msg_2"] }, secret),
      "webhook-id",
    ],
    ["no secret at all", async () => verifyWebhook(body, theirs(), []), "webhook-signature"],
  ];
  for (const [name, attempt, field] of refusals) {
    vector(`is refused: ${name}`, async () => {
      const error = await attempt().catch((thrown) => thrown);
      expect(error).toBeInstanceOf(InvalidWebhook);
      expect(error).toMatchObject({ code: "INVALID_WEBHOOK", field });
    });
  }

  vector("within four minutes is accepted in both directions, and further apart with a larger tolerance", async () => {
    for (const minutes of [-4, 4]) {
      expect(await verifyWebhook(body, theirs(new Date(Date.now() + minutes * 60_000)), secret)).toEqual(payload);
    }
    const late = theirs(new Date(Date.now() - 3_600_000));
    expect(await verifyWebhook(body, late, secret, { tolerance: "2h" })).toEqual(payload);
  });

  vector("is remembered by its id, once it was believed", async () => {
    const seen = new Set<string>();
    await expect(verifyWebhook(body, theirs(), stranger, { seen })).rejects.toBeInstanceOf(InvalidWebhook);
    expect(seen.size).toBe(0);
    await verifyWebhook(body, theirs(), secret, { seen });
    // Processing failed: it is sent again and accepted.
    await verifyWebhook(body, theirs(), secret, { seen });
    seen.add("msg_1");
    await expect(verifyWebhook(body, theirs(), secret, { seen })).rejects.toMatchObject({ code: "REPEATED_WEBHOOK" });
    await verifyWebhook(body, theirs(new Date(), "msg_2"), secret, { seen });
  });
});
