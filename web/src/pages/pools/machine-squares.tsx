// The machines of a pool as a row of squares, with a legend in text.
import { escapeText, formatCount, formatDuration, plural } from "@stillwake/ui/format.ts";
import type { api } from "../../api/resources.ts";
import { countSquares, machineSquares, squareLabels } from "../../parts/machine-text.ts";

const MAX_SQUARES = 40;

export function MachineSquares({
  settings,
  machines,
}: {
  settings: NonNullable<api.Pool["machines"]>;
  machines: readonly api.Machine[];
}) {
  const squares = machineSquares(settings, machines);
  const { provider, size, region, slots: jobsAtOnce, idleExitMs } = settings;
  const kind = [provider, size, region].filter((part) => part !== null).map(escapeText);
  return (
    <div className="machine-squares">
      <div className="machine-squares-row" aria-hidden="true">
        {squares.slice(0, MAX_SQUARES).map((square, index) => (
          <span key={index} className="machine-square" data-square={square} title={squareLabels[square]} />
        ))}
        {squares.length > MAX_SQUARES && (
          <span className="soft small">+{formatCount(squares.length - MAX_SQUARES)}</span>
        )}
      </div>
      <p className="machine-squares-legend small">
        {countSquares(squares).map(([square, number]) => (
          <span key={square}>
            <span className="machine-square" data-square={square} aria-hidden="true" /> {formatCount(number)}{" "}
            {squareLabels[square]}
          </span>
        ))}
      </p>
      <p className="machine-squares-kind soft small untrusted">
        {kind.join(" · ")} · {plural(jobsAtOnce, "job")} at once on each · stops after {formatDuration(idleExitMs)}{" "}
        without a job
      </p>
    </div>
  );
}
