// The machines of a pool as a row of squares, with a legend in text.
import { escapeText, formatCount, formatDuration, plural } from "@stillwake/ui/format.ts";
import type { api } from "../../api/resources.ts";
import { countSlots, machineSlots, slotLabels } from "../../parts/machine-text.ts";

const MAX_SQUARES = 40;

export function MachineSlots({
  settings,
  machines,
}: {
  settings: NonNullable<api.Pool["machines"]>;
  machines: readonly api.Machine[];
}) {
  const slots = machineSlots(settings, machines);
  const { provider, size, region, slots: jobsAtOnce, idleExitMs } = settings;
  const kind = [provider, size, region].filter((part) => part !== null).map(escapeText);
  return (
    <div className="machine-slots">
      <div className="machine-slots-row" aria-hidden="true">
        {slots.slice(0, MAX_SQUARES).map((slot, index) => (
          <span key={index} className="machine-slot" data-slot={slot} title={slotLabels[slot]} />
        ))}
        {slots.length > MAX_SQUARES && <span className="soft small">+{formatCount(slots.length - MAX_SQUARES)}</span>}
      </div>
      <p className="machine-slots-legend small">
        {countSlots(slots).map(([slot, number]) => (
          <span key={slot}>
            <span className="machine-slot" data-slot={slot} aria-hidden="true" /> {formatCount(number)}{" "}
            {slotLabels[slot]}
          </span>
        ))}
      </p>
      <p className="machine-slots-kind soft small untrusted">
        {kind.join(" · ")} · {plural(jobsAtOnce, "job")} at once on each · stops after {formatDuration(idleExitMs)}{" "}
        without a job
      </p>
    </div>
  );
}
