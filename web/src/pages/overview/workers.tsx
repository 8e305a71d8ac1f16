// The workers that are there, and how much each does.
import { Link } from "wouter";
import type { nouns } from "../../api/nouns.ts";
import { Command } from "../../parts/copy.tsx";
import { stateWords } from "../../parts/machine-words.ts";
import { Empty, Panel } from "../../parts/panel.tsx";
import { count, inert } from "../../parts/words.ts";

const AT_MOST = 8;

export function Workers({ machines }: { machines: readonly nouns.Machine[] }) {
  const rest = machines.length - AT_MOST;
  return (
    <Panel
      title="Workers"
      acts={
        <Link href="/pools" className="small">
          Pools and machines
        </Link>
      }
      bare
    >
      {machines.length === 0 ? (
        <Empty title="No worker is there">
          <p>That is as it should be while nothing is to be done. This starts one:</p>
          <Command>npx stillwake worker</Command>
        </Empty>
      ) : (
        <ul className="latest">
          {machines.slice(0, AT_MOST).map(({ worker, pool, running, state }) => (
            <li key={`${worker} ${pool}`}>
              <span className="foreign">{inert(worker)}</span>
              <span className="latest-when number">
                {running === 0 ? stateWords[state] : `${count(running)} running`}
              </span>
              <span className="latest-says soft foreign">pool {inert(pool)}</span>
            </li>
          ))}
          {rest > 0 && (
            <li>
              <Link href="/pools">and {count(rest)} more</Link>
            </li>
          )}
        </ul>
      )}
    </Panel>
  );
}
