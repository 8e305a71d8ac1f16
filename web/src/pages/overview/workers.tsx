// The connected workers and their running jobs.

import { escapeText, formatCount } from "@stillwake/ui/format.ts";
import { Empty, Panel } from "@stillwake/ui/parts/panel.tsx";
import { Link } from "wouter";
import type { api } from "../../api/resources.ts";
import { Command } from "../../parts/copy.tsx";
import { machineStateLabels } from "../../parts/machine-text.ts";

const MAX_ROWS = 8;

export function Workers({ machines }: { machines: readonly api.Machine[] }) {
  const rest = machines.length - MAX_ROWS;
  return (
    <Panel
      title="Workers"
      actions={
        <Link href="/pools" className="small">
          Pools and machines
        </Link>
      }
      bare
    >
      {machines.length === 0 ? (
        <Empty title="No worker is connected">
          <p>Workers disconnect while there is nothing to do. This command starts one:</p>
          <Command>npx stillwake worker</Command>
        </Empty>
      ) : (
        <ul className="latest">
          {machines.slice(0, MAX_ROWS).map(({ worker, pool, running, state }) => (
            <li key={`${worker} ${pool}`}>
              <span className="untrusted">{escapeText(worker)}</span>
              <span className="latest-when number">
                {running === 0 ? machineStateLabels[state] : `${formatCount(running)} running`}
              </span>
              <span className="latest-text soft untrusted">pool {escapeText(pool)}</span>
            </li>
          ))}
          {rest > 0 && (
            <li>
              <Link href="/pools">and {formatCount(rest)} more</Link>
            </li>
          )}
        </ul>
      )}
    </Panel>
  );
}
