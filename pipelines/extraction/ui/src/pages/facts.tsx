// The figures of an extraction: times, machines, attempts, skipped scans, cost.
import { escapeLine, formatDayTime, formatDuration, formatMoney, plural } from "@stillwake/ui/format.ts";
import { FactColumns } from "@stillwake/ui/parts/facts.tsx";
import { Duration } from "@stillwake/ui/parts/time.tsx";
import { ExtractionBadge } from "../parts/badges.tsx";
import type { ExtractionDetail } from "../types.ts";

/** What a skipped optional step would have provided. */
const MISSING: Record<string, string> = {
  vuln_scan: "vulnerabilities",
  "vuln_scan/exploitation": "EPSS and KEV",
  semgrep: "static analysis",
  trufflehog: "secrets",
  uploading: "reports",
};

export function Facts({ detail }: { detail: ExtractionDetail }) {
  const { status, createdAt, startedAt, endedAt, machines, machine, attempts, job, missing, summary, cost } = detail;
  const names = machines.length > 0 ? machines : machine === null ? [] : [machine];
  const facts: [string, React.ReactNode][] = [
    ["Status", <ExtractionBadge key="status" status={status} />],
    ["Requested", formatDayTime(createdAt)],
    [endedAt ? "Took" : "Running for", <Duration key="duration" from={startedAt} to={endedAt} />],
    [names.length > 1 ? "Machines" : "Machine", names.length === 0 ? "–" : <Names key="machines" names={names} />],
    ["Attempts", attempts === 0 ? "–" : job ? `${attempts} of ${job.maxAttempts}` : String(attempts)],
    ["Cost", cost ? `${formatMoney(cost.amount)}${cost.provisional ? " so far" : ""}` : "unknown"],
  ];
  if (summary) {
    const { direct, transitive } = summary.dependencies;
    facts.push(["Dependencies", `${direct} direct, ${transitive} transitive`]);
  }
  if (missing.length > 0) facts.push(["Skipped", missing.map((step) => MISSING[step] ?? escapeLine(step)).join(", ")]);
  return (
    <>
      <FactColumns facts={facts} />
      {cost && cost.parts.length > 0 && (
        <p className="soft small">
          {cost.parts.map((part) => (
            <span key={part.machine} className="untrusted">
              {escapeLine(part.machine)}
              {part.size && `, ${escapeLine(part.size)}`}
              {part.region && ` in ${escapeLine(part.region)}`}: {formatDuration(part.seconds * 1000)} ×{" "}
              {formatMoney(part.pricePerSecond)} per second = {formatMoney(part.amount)}.{" "}
            </span>
          ))}
          {cost.provisional && `${plural(machines.length, "machine")} may still be shared with other jobs.`}
        </p>
      )}
    </>
  );
}

function Names({ names }: { names: readonly string[] }) {
  return (
    <span className="lines">
      {names.map((name) => (
        <span key={name} className="untrusted mono">
          {escapeLine(name)}
        </span>
      ))}
    </span>
  );
}
