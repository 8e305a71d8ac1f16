// What the dashboard says of machines: places, what keeps them from starting, and when that wants attention.
import { describe, expect, it } from "vitest";
import { troublesOf } from "../../web/src/pages/overview/troubles.ts";
import { heldBack, isStarting, placesOf } from "../../web/src/parts/machine-words.ts";

describe("the pages", () => {
  const of = (state: "up" | "idle" | "starting" | "leaving" | "ended", burst = false) =>
    ({ state, machine: { burst } }) as Parameters<typeof placesOf>[1][number];

  it("have a place for each machine there is, for those that are kept stopped, and for those that may be made", () => {
    expect(placesOf({ warm: 2, max: 4 }, [])).toEqual(["stopped", "stopped", "free", "free"]);
    const some = [of("starting"), of("up"), of("ended")];
    expect(placesOf({ warm: 2, max: 4 }, some)).toEqual(["up", "starting", "free", "free"]);
    expect(placesOf({ warm: 2, max: 4 }, [of("up", true)])).toEqual(["up", "stopped", "stopped", "free"]);
    const many = Array.from({ length: 6 }, () => of("idle", true));
    expect(placesOf({ warm: 2, max: 4 }, many)).toEqual(Array(6).fill("idle"));
    expect(placesOf({ warm: 0, max: 1 }, [{ state: "up", machine: null }])).toEqual(["free"]);
  });

  it("say what keeps machines from starting, and of what somebody has to mend so in red", () => {
    const machines = {} as NonNullable<Parameters<typeof heldBack>[0]["machines"]>;
    const trouble = { code: "PROVIDER_AUTH", message: "No", remedy: "Make one", since: null, until: null };
    expect(heldBack({ name: "scan", machines: null, trouble, wastedStarts: 9 })).toBeUndefined();
    expect(heldBack({ name: "scan", machines, trouble: null, wastedStarts: 2 })).toBeUndefined();
    expect(heldBack({ name: "scan", machines, trouble, wastedStarts: 0 })).toMatchObject({
      tone: "bad",
      why: "No: Make one",
    });
    const rate = { ...trouble, code: "PROVIDER_RATE", message: "Wait. Make one" };
    expect(heldBack({ name: "scan", machines, trouble: rate, wastedStarts: 0 })).toMatchObject({
      tone: "amber",
      why: rate.message,
    });
    expect(heldBack({ name: "scan", machines, trouble: null, wastedStarts: 3 })).toMatchObject({
      tone: "bad",
      what: expect.stringMatching(/last 3/),
      why: expect.stringMatching(/how they ended.*stillwake resume --pool scan/),
    });
  });

  it("look by the second while a machine starts or should, not while it is kept from it", () => {
    const of = (now: number, starting: number) => ({ now, starting }) as Parameters<typeof isStarting>[0]["machines"];
    const pool = {
      name: "scan",
      paused: null,
      claimable: 1,
      wanted: 1,
      machines: of(0, 0),
      trouble: null,
      wastedStarts: 0,
    };
    expect(isStarting(pool)).toBe(true);
    expect(isStarting({ ...pool, machines: null })).toBe(false);
    expect(isStarting({ ...pool, machines: of(1, 0) })).toBe(false);
    expect(isStarting({ ...pool, claimable: 0, machines: of(1, 1) })).toBe(true);
    expect(isStarting({ ...pool, paused: { at: "2026-05-04T12:00:00Z", by: null, reason: null } })).toBe(false);
    expect(isStarting({ ...pool, wastedStarts: 3 })).toBe(false);
  });

  it("want attention for a pool whose machines do not start, once there was time for it", () => {
    const now = Date.parse("2026-05-04T12:00:00Z");
    const words = { count: String, several: (n: number, one: string, more = one) => `${n} ${n === 1 ? one : more}` };
    const machines = {} as NonNullable<Parameters<typeof heldBack>[0]["machines"]>;
    const pool = { name: "scan", paused: null, claimable: 2, machines, oldest: "2026-05-04T11:59:50Z" };
    const ended = { completed: 0, failed: 0, cancelled: 0 };
    const none = { breakers: [], machines: [], schedules: [], endpoints: [], ended, word: "" };
    const said = (more: object) =>
      troublesOf({ ...none, pools: [{ ...pool, ...more }] }, now, { ...words, distance: () => "soon", span: String });
    expect(said({})).toEqual([]);
    expect(said({ oldest: "2026-05-04T11:50:00Z" })).toMatchObject([
      { what: "No machine was started for pool scan: 2 jobs wait" },
    ]);
    const trouble = {
      code: "PROVIDER_RATE",
      message: "Too often",
      remedy: null,
      since: null,
      until: "2026-05-04T12:01:00Z",
    };
    expect(said({ trouble })).toEqual([
      { href: "/pools", what: "Pool scan: no machine can be started", why: "Too often. Tried again soon." },
    ]);
  });
});
