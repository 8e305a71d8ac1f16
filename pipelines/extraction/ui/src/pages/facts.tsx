// What an extraction came to in figures: when, where, how often it was tried, what is missing, what it cost.
import { useNow } from "@stillwake/kit/ui/parts/now.ts";
import { dayTime, inLine, several, span, took } from "@stillwake/kit/ui/parts/words.ts";
import type { Detail } from "../nouns.ts";
import { StatusMark } from "../parts/marks.tsx";
import { money } from "../parts/words.ts";

/** What a missing step would have told. */
const MISSING: Record<string, string> = {
  vuln_scan: "vulnerabilities",
  "vuln_scan/exploitation": "EPSS and KEV",
  semgrep: "static analysis",
  trufflehog: "secrets",
  uploading: "reports",
};

export function Facts({ detail }: { detail: Detail }) {
  const now = useNow();
  const { status, createdAt, startedAt, endedAt, machines, machine, attempts, job, missing, summary, cost } = detail;
  const where = machines.length > 0 ? machines : machine === null ? [] : [machine];
  const facts: [string, React.ReactNode][] = [
    ["Status", <StatusMark key="status" status={status} />],
    ["Asked for", dayTime(createdAt)],
    [endedAt ? "Took" : "Runs for", took(startedAt, endedAt, now) ?? "–"],
    [where.length > 1 ? "Machines" : "Machine", where.length === 0 ? "–" : <Names key="machines" names={where} />],
    ["Attempts", attempts === 0 ? "–" : job ? `${attempts} of ${job.maxAttempts}` : String(attempts)],
    ["Cost", cost ? `${money(cost.amount)}${cost.provisional ? " so far" : ""}` : "no price is known"],
  ];
  if (summary) {
    const { direct, transitive } = summary.dependencies;
    facts.push(["Dependencies", `${direct} direct, ${transitive} transitive`]);
  }
  if (missing.length > 0) facts.push(["Missing", missing.map((step) => MISSING[step] ?? inLine(step)).join(", ")]);
  return (
    <>
      <dl className="facts">
        {facts.map(([name, value]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd className="number">{value}</dd>
          </div>
        ))}
      </dl>
      {cost && cost.parts.length > 0 && (
        <p className="soft small">
          {cost.parts.map((part) => (
            <span key={part.machine} className="foreign">
              {inLine(part.machine)}
              {part.size && `, ${inLine(part.size)}`}
              {part.region && ` in ${inLine(part.region)}`}: {span(part.seconds * 1000)} × {money(part.pricePerSecond)}{" "}
              a second = {money(part.amount)}.{" "}
            </span>
          ))}
          {cost.provisional && `The ${several(machines.length, "machine")} may still be shared with others.`}
        </p>
      )}
    </>
  );
}

function Names({ names }: { names: readonly string[] }) {
  return (
    <span className="lines">
      {names.map((name) => (
        <span key={name} className="foreign mono">
          {inLine(name)}
        </span>
      ))}
    </span>
  );
}
