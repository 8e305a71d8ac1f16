// What wants attention, each with the way to it; or the word that all is well.
import { Link } from "wouter";
import type { nouns } from "../../api/nouns.ts";
import { distance, inert, several, span } from "../../parts/words.ts";

interface Matter {
  href: string;
  what: string;
  why: string;
}

interface Known {
  breakers: readonly nouns.Breaker[];
  pools: readonly nouns.Pool[];
  schedules: readonly nouns.Schedule[];
  endpoints: readonly nouns.Endpoint[];
  stats: nouns.Stats;
  workers: number;
}

/** A schedule is fired within a minute by whoever tends the installation. */
const LATE_MS = 2 * 60_000;

export function troublesOf({ breakers, pools, schedules, endpoints, stats, workers }: Known): Matter[] {
  const found: Matter[] = [];
  const ready = stats.waiting.machine ?? 0;
  if (ready > 0 && workers === 0) {
    const what = `${several(ready, "job waits", "jobs wait")} for a worker, and none is there`;
    found.push({ href: "/pools", what, why: "Start one: npx stillwake worker" });
  }
  for (const { name, state, reason, resumeAt } of breakers) {
    if (state !== "open") continue;
    const again = resumeAt && Date.parse(resumeAt) > Date.now() ? `tried again ${distance(resumeAt, Date.now())}` : "";
    found.push({ href: "/flow", what: `Breaker ${inert(name)} is open`, why: joined(reason, again) });
  }
  for (const { name, paused } of pools) {
    if (!paused) continue;
    const what = `Pool ${inert(name)} is paused`;
    found.push({ href: "/pools", what, why: joined(paused.by && `by ${paused.by}`, paused.reason) });
  }
  for (const { name, lateMs, paused, lastError } of schedules) {
    if (paused || (lateMs < LATE_MS && lastError === null)) continue;
    const what =
      lateMs >= LATE_MS ? `Schedule ${inert(name)} is ${span(lateMs)} late` : `Schedule ${inert(name)} failed`;
    found.push({ href: "/schedules", what, why: joined(lastError) });
  }
  for (const { name, disabledAt, disabledReason } of endpoints) {
    if (disabledAt)
      found.push({ href: "/webhooks", what: `Endpoint ${inert(name)} is disabled`, why: joined(disabledReason) });
  }
  return found;
}

function joined(...parts: (string | null)[]): string {
  return inert(parts.filter(Boolean).join(": "));
}

export function Trouble({ troubles }: { troubles: readonly Matter[] }) {
  if (troubles.length === 0) {
    return (
      <p className="callout trouble" data-tone="teal">
        Nothing wants attention: no breaker is open, no pool is paused, no schedule is late.
      </p>
    );
  }
  return (
    <section className="callout trouble" data-tone="amber" aria-label="What wants attention">
      <ul>
        {troubles.map(({ href, what, why }) => (
          <li key={what}>
            <Link href={href} className="foreign">
              {what}
            </Link>
            {why && <span className="soft foreign">{why}</span>}
          </li>
        ))}
      </ul>
    </section>
  );
}
