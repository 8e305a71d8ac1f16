// Tests of the provider API fakes: their requests and responses match the official schemas, if available, and a wrong request is detected.
import { describe, expect, it } from "vitest";
import { startFakeFly } from "../support/providers/fake-fly.ts";
import { createTestTime } from "../support/providers/fake-provider-api.ts";
import { compareWithOfficial, type Description } from "../support/providers/schemas/check.ts";
import { cloudRunDescription } from "../support/providers/schemas/cloud-run.ts";
import { flyDescription } from "../support/providers/schemas/fly.ts";
import { kubernetesDescription } from "../support/providers/schemas/kubernetes.ts";

const all: Description[] = [flyDescription, cloudRunDescription, kubernetesDescription];

describe.each(all)("$name", (description) => {
  it("has a condensed schema that matches the official one", ({ skip }) => {
    const wrong = compareWithOfficial(description);
    if (!wrong) skip(`${description.official.file} is not available`);
    expect(wrong).toEqual([]);
  });
});

describe("the comparison with the official schema", () => {
  const config = "create.body.properties.config";
  it.each<[string, string, unknown, RegExp]>([
    ["an operation", "list.path", "/apps/{app}/instances", /^list: there is no GET/],
    ["a parameter", "remove.query.kill", {}, /^remove: the query knows no "kill"/],
    ["a property", "create.body.properties.title", {}, /^create body: there is no "title"/],
    [
      "a property within",
      `${config}.properties.guest.properties.ram`,
      {},
      /^create body\.config\.guest: there is no "ram"/,
    ],
    ["a type", "get.responses.200.properties.events", { type: "string" }, /^get 200\.events: is string here and array/],
    [
      "a value",
      "get.responses.200.properties.host_status",
      { enum: ["fine"] },
      /^get 200\.host_status: there is no "fine"/,
    ],
  ])("detects %s that does not exist", (_, place, value, notice) => {
    const description: Description = JSON.parse(JSON.stringify(flyDescription));
    const keys = place.split(".");
    const last = keys.pop()!;
    // biome-ignore lint/suspicious/noExplicitAny: a document of whatever depth.
    const parent = keys.reduce<any>((part, key) => part[key], description.operations);
    parent[last] = value;
    const wrong = compareWithOfficial(description);
    if (wrong) expect(wrong).toEqual([expect.stringMatching(notice)]);
  });
});

describe("a fake", () => {
  const config = { image: "a", metadata: {} };

  it("detects a wrong request by operation and property, with the condensed and the official schema", async () => {
    const fake = await startFakeFly();
    const send = (body: object, query = "") =>
      fetch(`${fake.url}/apps/workers/machines${query}`, {
        method: "POST",
        headers: { authorization: `Bearer ${fake.token}` },
        body: JSON.stringify(body),
      });
    await send({ name: "a", config });
    expect(fake.violations.splice(0)).toEqual([]);
    // The name is taken, so that the response does not repeat the mistake.
    await send({ name: "a", config: { ...config, autodestroy: true } });
    await send({ name: "a", config: { ...config, restart: { policy: "never" } } });
    await send({ name: "a", config }, "?dry_run=true");
    const caught = fake.violations.splice(0);
    await fake.close();
    const ours = caught.filter((one) => !one.includes("official"));
    expect(ours).toEqual([
      'create request: /config must NOT have additional properties "autodestroy"',
      "create request: /config/restart/policy must be equal to one of the allowed values",
      'create request: the query has an unknown "dry_run"',
    ]);
    expect(caught).toHaveLength(fake.official ? 6 : 3);
  });

  it("detects a wrong response of its own", async () => {
    const fake = await startFakeFly();
    fake.add("a", {}, "snoozing");
    await fetch(`${fake.url}/apps/workers/machines`, { headers: { authorization: `Bearer ${fake.token}` } });
    await fake.close();
    expect(fake.violations).toEqual(["list 200: /0/state must be equal to one of the allowed values"]);
  });

  it("applies the documented rate limits, on its clock", async () => {
    const time = createTestTime();
    const fake = await startFakeFly({ now: time.now });
    const list = async () =>
      (await fetch(`${fake.url}/apps/workers/machines`, { headers: { authorization: `Bearer ${fake.token}` } })).status;
    const burst = [await list(), await list(), await list(), await list()];
    time.advance(999);
    const early = await list();
    time.advance(1);
    const later = [await list(), await list()];
    await fake.close();
    expect([burst, early, later]).toEqual([[200, 200, 200, 429], 429, [200, 429]]);
    expect(fake.countRateLimited()).toBe(3);
  });
});
