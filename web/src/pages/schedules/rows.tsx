// The table of schedules, and what unfolds under a row.
import { useState } from "react";
import { Link } from "wouter";
import { useAct } from "../../api/ask.ts";
import { type nouns, useSlots } from "../../api/nouns.ts";
import { useMay } from "../../api/who.ts";
import { Ask, Button } from "../../parts/button.tsx";
import { Moment } from "../../parts/moment.tsx";
import { Asked } from "../../parts/panel.tsx";
import { Payload } from "../../parts/payload.tsx";
import { type Column, Table } from "../../parts/table.tsx";
import { count, inert, several, shortId, span } from "../../parts/words.ts";
import { cronWords } from "./cron-words.ts";

/** A slot that is looked at within a minute is on time. */
export const isLate = ({ lateMs }: nouns.Schedule) => lateMs > 60_000;

const pathOf = (name: string, rest = "") => `/v1/schedules/${encodeURIComponent(name)}${rest}`;

export function ScheduleTable({
  schedules,
  onEdit,
}: {
  schedules: nouns.Schedule[];
  onEdit: (schedule: nouns.Schedule) => void;
}) {
  const may = useMay();
  const [open, setOpen] = useState<string>();
  const columns: Column<nouns.Schedule>[] = [
    { head: "Schedule", cell: (schedule) => <Title schedule={schedule} /> },
    {
      head: "Pipeline",
      width: "13%",
      cell: ({ pipeline }) => (
        <Link href={`/jobs?pipeline=${encodeURIComponent(pipeline)}`} className="foreign">
          {inert(pipeline)}
        </Link>
      ),
    },
    { head: "Next", width: "15%", cell: (schedule) => <Next schedule={schedule} /> },
    { head: "Last job", width: "10%", cell: ({ last }) => <Last last={last} /> },
    { head: "Slots so far", width: "13%", cell: (schedule) => <Slots schedule={schedule} /> },
    {
      head: "Acts",
      width: may.manage ? "220px" : "128px",
      quiet: true,
      cell: (schedule) => (
        <div className="acts">
          <Button
            aria-expanded={open === schedule.name}
            onClick={() => setOpen(open === schedule.name ? undefined : schedule.name)}
          >
            Next ten
          </Button>
          {may.manage && <PauseOrResume schedule={schedule} />}
        </div>
      ),
    },
  ];
  return (
    <Table
      label="Schedules"
      columns={columns}
      rows={schedules}
      keyOf={({ name }) => name}
      below={(schedule) =>
        (schedule.lastError !== null || open === schedule.name) && (
          <div className="unfolded">
            {schedule.lastError !== null && (
              <div className="callout" data-tone="bad">
                <strong>Its job could not be enqueued; it is tried again every minute</strong>
                <span className="foreign">{inert(schedule.lastError)}</span>
              </div>
            )}
            {open === schedule.name && <Unfolded schedule={schedule} onEdit={() => onEdit(schedule)} />}
          </div>
        )
      }
    />
  );
}

function Title({ schedule: { name, cron, zone } }: { schedule: nouns.Schedule }) {
  const words = cronWords(cron);
  return (
    <div className="lines">
      <span className="foreign">{inert(name)}</span>
      <span className="when">
        {words ?? <code className="foreign">{inert(cron)}</code>} <span className="soft foreign">{inert(zone)}</span>
      </span>
      {words && <code className="cron soft foreign">{inert(cron)}</code>}
    </div>
  );
}

function Next({ schedule }: { schedule: nouns.Schedule }) {
  const { next, paused, lateMs, zone } = schedule;
  if (paused) {
    return (
      <div className="lines">
        <span className="tag" data-tone="amber">
          paused
        </span>
        <span className="soft foreign">
          {paused.by !== null && `by ${inert(paused.by)} `}
          <Moment at={paused.at} />
        </span>
      </div>
    );
  }
  if (next === null) return <span className="soft">never again</span>;
  return (
    <div className="lines">
      {isLate(schedule) ? (
        <span className="tag" data-tone="amber">
          late by {span(Math.round(lateMs / 1000) * 1000)}
        </span>
      ) : (
        <Moment at={next.at} />
      )}
      <span className="soft number">{timeIn(zone, next)}</span>
    </div>
  );
}

/** As the clocks of the zone show it; of a zone that this browser does not know, the slot's own words. */
function timeIn(zone: string, { at, slot }: nouns.Slot): string {
  try {
    return new Intl.DateTimeFormat("en-GB", {
      timeZone: zone,
      weekday: "short",
      day: "numeric",
      month: "short",
      hour: "2-digit",
      minute: "2-digit",
    }).format(new Date(at));
  } catch {
    return inert(slot.replace("T", " "));
  }
}

function Last({ last }: { last: nouns.Schedule["last"] }) {
  if (!last) return <span className="soft">none yet</span>;
  return (
    <div className="lines">
      <Link href={`/jobs/${last.job}`} className="mono">
        {shortId(last.job)}
      </Link>
      <span className="soft">
        <Moment at={last.at} />
      </span>
    </div>
  );
}

function Slots({ schedule: { fired, skipped, missed } }: { schedule: nouns.Schedule }) {
  return (
    <div className="lines number">
      <span>{several(fired, "job")}</span>
      {skipped > 0 && <span className="soft">{count(skipped)} skipped</span>}
      {missed > 0 && <span className="missed">{count(missed)} missed</span>}
    </div>
  );
}

function PauseOrResume({ schedule: { name, paused } }: { schedule: nouns.Schedule }) {
  const { act, busy } = useAct();
  const [verb, done] = paused
    ? ["resume", `Schedule ${name} goes on with its next slot`]
    : ["pause", `Schedule ${name} is paused`];
  return (
    <Button disabled={busy} onClick={() => act({ path: pathOf(name, `/${verb}`), done })}>
      {paused ? "Resume" : "Pause"}
    </Button>
  );
}

function Unfolded({ schedule, onEdit }: { schedule: nouns.Schedule; onEdit: () => void }) {
  const may = useMay();
  const { act, busy } = useAct();
  const { name, zone, overlap, catchUp, input } = schedule;
  const slots = useSlots(name, 10, true);
  return (
    <div className="slots">
      <Asked of={slots}>
        {(answer) =>
          answer.slots.length === 0 ? (
            <p className="soft">No time of it will ever come.</p>
          ) : (
            <ol className="slot-list">
              {answer.slots.map((slot) => (
                <li key={slot.slot}>
                  <span className="number">{timeIn(zone, slot)}</span>
                  <span className="soft">
                    <Moment at={slot.at} />
                  </span>
                </li>
              ))}
            </ol>
          )
        }
      </Asked>
      <div className="slot-side">
        <dl className="facts">
          <dt>While the last job is live</dt>
          <dd>{overlaps[overlap] ?? inert(overlap)}</dd>
          <dt>Slots that passed unseen</dt>
          <dd>{catchUps[catchUp] ?? inert(catchUp)}</dd>
        </dl>
        <Payload label="input" value={input} />
        {may.manage && (
          <div className="slot-acts">
            <Button onClick={onEdit}>Change…</Button>
            <Ask
              label="Remove…"
              title={`Remove the schedule ${inert(name)}`}
              text="No slot of it becomes a job any more, and its counts are gone. Its jobs stay. Code that sets it again brings it back."
              yes="Remove it"
              disabled={busy}
              onYes={() => act({ method: "DELETE", path: pathOf(name), done: `Schedule ${name} is removed` })}
            />
          </div>
        )}
      </div>
    </div>
  );
}

export const overlaps: Record<string, string> = {
  skip: "The new slot has no job",
  queue: "The new job waits for the last",
  replace: "The last job is cancelled",
  allow: "Both run",
};

export const catchUps: Record<string, string> = {
  one: "The latest still gets its job",
  all: "Each still gets its job, in order",
  none: "They are only counted",
};
