// The cost of a job by attempt: the machine, its busy time, its share of startup and idle time, and the prices used.

import { escapeText, formatDuration, formatMoney } from "@stillwake/ui/format.ts";
import { Panel } from "@stillwake/ui/parts/panel.tsx";
import { type api, useJobCost } from "../../api/resources.ts";
import "../../css/cost.css";

export function Cost({ id, started }: { id: string; started: boolean }) {
  const { data } = useJobCost(id, started);
  if (!data || data.parts.length === 0) return null;
  const { amount, provisional, parts } = data;
  return (
    <Panel
      title="Cost"
      actions={
        <strong className="number">
          {formatMoney(amount)}
          {provisional && <span className="soft small"> so far</span>}
        </strong>
      }
      bare
    >
      <ul className="job-files">
        {parts.map((part) => (
          <Part key={part.epoch} part={part} alone={parts.length === 1} />
        ))}
      </ul>
    </Panel>
  );
}

function Part({ part, alone }: { part: api.JobCost["parts"][number]; alone: boolean }) {
  const { machine, provider, size, region, workedSeconds, busySeconds, idleSeconds, amount, prices } = part;
  const shared = busySeconds < workedSeconds * 0.99;
  return (
    <li>
      <span className="untrusted">{escapeText(machine)}</span>
      <span className="small soft untrusted">
        {[provider, size, region]
          .filter((value) => value !== null)
          .map(escapeText)
          .join(" · ")}
      </span>
      <span className="small">
        {!alone && `${formatMoney(amount)}: `}
        {formatDuration(workedSeconds * 1000)} of work
        {shared && ` on a shared machine, billed as ${formatDuration(busySeconds * 1000)}`}, plus{" "}
        {formatDuration(idleSeconds * 1000)} of startup and idle time
      </span>
      <span className="small soft untrusted">
        {prices === null ? "No price is known." : prices === "own" ? "Your own price" : `Prices: ${escapeText(prices)}`}
      </span>
    </li>
  );
}
