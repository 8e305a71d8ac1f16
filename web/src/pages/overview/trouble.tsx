// What wants attention, each with the way to it; or the word that all is well.
import { Link } from "wouter";
import { inert } from "../../parts/words.ts";
import type { Matter } from "./troubles.ts";

export function Trouble({ troubles }: { troubles: readonly Matter[] }) {
  if (troubles.length === 0) {
    return (
      <p className="callout trouble" data-tone="teal">
        Nothing wants attention: no pool lacks a worker or is paused, no breaker is open, no schedule is late.
      </p>
    );
  }
  return (
    <section className="callout trouble" data-tone="amber" aria-label="What wants attention">
      <ul>
        {troubles.map(({ href, what, why }) => (
          <li key={what}>
            <Link href={href} className="foreign">
              {inert(what)}
            </Link>
            {why && <span className="soft foreign">{inert(why)}</span>}
          </li>
        ))}
      </ul>
    </section>
  );
}
