// What wants attention, judged from what the pages know: each matter with the way to it. Pure, down to the words for numbers and spans, which are given:
// trouble.tsx shows it, and makes the text of strangers in it harmless.
import type { nouns } from "../../api/nouns.ts";
import { heldBack } from "../../parts/machine-words.ts";

type Words = Pick<typeof import("../../parts/words.ts"), "count" | "distance" | "several" | "span">;

export interface Matter {
  href: string;
  what: string;
  /** In sentences of their own, as many as there are. */
  why: string;
}

interface Known {
  breakers: readonly Pick<nouns.Breaker, "name" | "state" | "reason" | "resumeAt">[];
  pools: readonly (Pick<nouns.Pool, "name" | "paused" | "claimable"> &
    Partial<Pick<nouns.Pool, "machines" | "trouble" | "wastedStarts" | "oldest">>)[];
  machines: readonly Pick<nouns.Machine, "pool">[];
  schedules: readonly Pick<nouns.Schedule, "name" | "lateMs" | "paused" | "lastError">[];
  endpoints: readonly Pick<nouns.Endpoint, "name" | "disabledAt" | "disabledReason">[];
  ended: nouns.Stats["ended"];
  /** How far back what ended is counted, in words. */
  word: string;
}

/** A schedule is fired within a minute by whoever tends the installation. */
const LATE_MS = 2 * 60_000;
/** One failure of one job is no trouble of the whole. */
const ENOUGH = 5;

export function troublesOf(known: Known, now: number, words: Words): Matter[] {
  return [
    ...ofPools(known, now, words),
    ...ofEnds(known, words),
    ...ofBreakers(known, now, words),
    ...ofSchedules(known, words),
    ...ofEndpoints(known),
  ];
}

/** A machine that was asked for is there as one that starts; nobody has to worry before. */
const ASKED_WITHIN_MS = 90_000;

function ofPools({ pools, machines: awake }: Known, now: number, { several, distance }: Words): Matter[] {
  const served = new Set(awake.map(({ pool }) => pool));
  return pools.flatMap(
    ({ name, paused, claimable, machines = null, trouble = null, wastedStarts = 0, oldest = null }) => {
      const href = "/pools";
      const held = heldBack({ name, machines, trouble, wastedStarts });
      if (paused) {
        const by = paused.by ? ` by ${paused.by}` : "";
        return [{ href, what: `Pool ${name} is paused${by}`, why: sentences(paused.reason) }];
      }
      if (held) {
        const again = held.until && Date.parse(held.until) > now ? `Tried again ${distance(held.until, now)}` : null;
        return [
          {
            href,
            what: `Pool ${name}: ${held.what.charAt(0).toLowerCase()}${held.what.slice(1)}`,
            why: sentences(held.why, again),
          },
        ];
      }
      if (claimable === 0 || served.has(name)) return [];
      if (machines) {
        if (oldest === null || now - Date.parse(oldest) < ASKED_WITHIN_MS) return [];
        const what = `No machine was started for pool ${name}: ${several(claimable, "job waits", "jobs wait")}`;
        return [{ href, what, why: "Is the orchestrator running? npx stillwake orchestrator" }];
      }
      const what = `No worker serves pool ${name}: ${several(claimable, "job waits", "jobs wait")}`;
      return [{ href, what, why: `Start one: npx stillwake worker --pool ${name}` }];
    },
  );
}

function ofEnds({ ended: { completed, failed, cancelled }, word }: Known, { count, several }: Words): Matter[] {
  const all = completed + failed + cancelled;
  if (all < ENOUGH || failed * 2 < all) return [];
  const which = failed === all ? "All" : `${count(failed)} of`;
  return [
    { href: "/jobs?state=failed", what: `${which} ${several(all, "job")} that ended in ${word} failed`, why: "" },
  ];
}

function ofBreakers({ breakers }: Known, now: number, { distance }: Words): Matter[] {
  return breakers
    .filter(({ state }) => state === "open")
    .map(({ name, reason, resumeAt }) => {
      const again = resumeAt && Date.parse(resumeAt) > now ? `Tried again ${distance(resumeAt, now)}` : null;
      return { href: "/flow", what: `Breaker ${name} is open`, why: sentences(reason, again) };
    });
}

function ofSchedules({ schedules }: Known, { span }: Words): Matter[] {
  return schedules
    .filter(({ lateMs, paused, lastError }) => !paused && (lateMs >= LATE_MS || lastError !== null))
    .map(({ name, lateMs, lastError }) => {
      const how = lateMs >= LATE_MS ? `is ${span(lateMs)} late` : "failed";
      return { href: "/schedules", what: `Schedule ${name} ${how}`, why: sentences(lastError) };
    });
}

function ofEndpoints({ endpoints }: Known): Matter[] {
  return endpoints
    .filter(({ disabledAt }) => disabledAt !== null)
    .map(({ name, disabledReason }) => {
      return { href: "/webhooks", what: `Endpoint ${name} is disabled`, why: sentences(disabledReason) };
    });
}

function sentences(...parts: (string | null)[]): string {
  const said = parts.filter((one): one is string => !!one?.trim()).map((one) => one.trim());
  return said.map((one) => (/[.!?…]$/.test(one) ? one : `${one}.`)).join(" ");
}
