// What a job cost: on which machines, for how long, its share of their starting up and idling, and by which prices.
import { type nouns, useJobCost } from "../../api/nouns.ts";
import { money } from "../../parts/money.ts";
import { Panel } from "../../parts/panel.tsx";
import { inert, span } from "../../parts/words.ts";
import "../../look/cost.css";

export function Cost({ id, started }: { id: string; started: boolean }) {
  const { data } = useJobCost(id, started);
  if (!data || data.parts.length === 0) return null;
  const { amount, provisional, parts } = data;
  return (
    <Panel
      title="What it cost"
      acts={
        <strong className="number">
          {money(amount)}
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

function Part({ part, alone }: { part: nouns.JobCost["parts"][number]; alone: boolean }) {
  const { machine, provider, size, region, workedSeconds, busySeconds, idleSeconds, amount, prices } = part;
  const shared = busySeconds < workedSeconds * 0.99;
  return (
    <li>
      <span className="foreign">{inert(machine)}</span>
      <span className="small soft foreign">
        {[provider, size, region]
          .filter((one) => one !== null)
          .map(inert)
          .join(" · ")}
      </span>
      <span className="small">
        {!alone && `${money(amount)}: `}
        {span(workedSeconds * 1000)} of work
        {shared && `, which it shared with others and pays for ${span(busySeconds * 1000)} of`}, and{" "}
        {span(idleSeconds * 1000)} of starting up and idling
      </span>
      <span className="small soft foreign">
        {prices === null
          ? "No price is known."
          : prices === "own"
            ? "By a price of your own"
            : `Prices: ${inert(prices)}`}
      </span>
    </li>
  );
}
