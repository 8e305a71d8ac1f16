// Machines on the dashboard: their squares, what prevents their start, and when that is a problem.
import { describe, expect, it } from "vitest";
import { findProblems } from "../../web/src/pages/overview/problems.ts";
import { isStarting, machineSquares, startProblem } from "../../web/src/parts/machine-text.ts";

describe("machines on the dashboard", () => {
  const machine = (state: "up" | "idle" | "starting" | "leaving" | "ended", burst = false) =>
    ({ state, machine: { burst } }) as Parameters<typeof machineSquares>[1][number];

  it("have a square for each machine that exists, is kept stopped, or may be created", () => {
    expect(machineSquares({ warm: 2, max: 4 }, [])).toEqual(["stopped", "stopped", "free", "free"]);
    const some = [machine("starting"), machine("up"), machine("ended")];
    expect(machineSquares({ warm: 2, max: 4 }, some)).toEqual(["up", "starting", "free", "free"]);
    expect(machineSquares({ warm: 2, max: 4 }, [machine("up", true)])).toEqual(["up", "stopped", "stopped", "free"]);
    const many = Array.from({ length: 6 }, () => machine("idle", true));
    expect(machineSquares({ warm: 2, max: 4 }, many)).toEqual(Array(6).fill("idle"));
    expect(machineSquares({ warm: 0, max: 1 }, [{ state: "up", machine: null }])).toEqual(["free"]);
  });

  it("report what prevents their start, in red if the operator has to fix it", () => {
    const machines = {} as NonNullable<Parameters<typeof startProblem>[0]["machines"]>;
    const providerError = { code: "PROVIDER_AUTH", message: "No", remedy: "Make one", since: null, until: null };
    expect(startProblem({ name: "scan", machines: null, providerError, wastedStarts: 9 })).toBeUndefined();
    expect(startProblem({ name: "scan", machines, providerError: null, wastedStarts: 2 })).toBeUndefined();
    expect(startProblem({ name: "scan", machines, providerError, wastedStarts: 0 })).toMatchObject({
      tone: "bad",
      why: "No: Make one",
    });
    const rate = { ...providerError, code: "PROVIDER_RATE", message: "Wait. Make one" };
    expect(startProblem({ name: "scan", machines, providerError: rate, wastedStarts: 0 })).toMatchObject({
      tone: "amber",
      why: rate.message,
    });
    expect(startProblem({ name: "scan", machines, providerError: null, wastedStarts: 3 })).toMatchObject({
      tone: "bad",
      what: expect.stringMatching(/last 3/),
      why: expect.stringMatching(/how they ended.*stillwake resume --pool scan/),
    });
  });

  it("refresh within seconds while one starts or is about to, but not while its start is prevented", () => {
    const counts = (now: number, starting: number) =>
      ({ now, starting }) as Parameters<typeof isStarting>[0]["machines"];
    const pool = {
      name: "scan",
      paused: null,
      claimable: 1,
      wanted: 1,
      machines: counts(0, 0),
      providerError: null,
      wastedStarts: 0,
    };
    expect(isStarting(pool)).toBe(true);
    expect(isStarting({ ...pool, machines: null })).toBe(false);
    expect(isStarting({ ...pool, machines: counts(1, 0) })).toBe(false);
    expect(isStarting({ ...pool, claimable: 0, machines: counts(1, 1) })).toBe(true);
    expect(isStarting({ ...pool, paused: { at: "2026-05-04T12:00:00Z", by: null, reason: null } })).toBe(false);
    expect(isStarting({ ...pool, wastedStarts: 3 })).toBe(false);
  });

  it("are a problem if they do not start in time", () => {
    const now = Date.parse("2026-05-04T12:00:00Z");
    const formatters = {
      formatCount: String,
      plural: (n: number, singular: string, many = singular) => `${n} ${n === 1 ? singular : many}`,
      formatRelative: () => "soon",
      formatDuration: String,
    };
    const machines = {} as NonNullable<Parameters<typeof startProblem>[0]["machines"]>;
    const pool = { name: "scan", paused: null, claimable: 2, machines, oldest: "2026-05-04T11:59:50Z" };
    const ended = { completed: 0, failed: 0, cancelled: 0 };
    const none = { breakers: [], machines: [], schedules: [], endpoints: [], ended, timeRange: "" };
    const problems = (more: object) => findProblems({ ...none, pools: [{ ...pool, ...more }] }, now, formatters);
    expect(problems({})).toEqual([]);
    expect(problems({ oldest: "2026-05-04T11:50:00Z" })).toMatchObject([
      { what: "No machine was started for pool scan: 2 jobs wait" },
    ]);
    const providerError = {
      code: "PROVIDER_RATE",
      message: "Too often",
      remedy: null,
      since: null,
      until: "2026-05-04T12:01:00Z",
    };
    expect(problems({ providerError })).toEqual([
      { href: "/pools", what: "Pool scan: no machine can be started", why: "Too often. Next start soon." },
    ]);
  });
});
