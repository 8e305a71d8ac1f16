// The table of schedules, with details below a row.

import { useAction } from "@stillwake/ui/api/query.ts";
import { escapeText, formatCount, formatDuration, plural, shortId } from "@stillwake/ui/format.ts";
import { Button, ConfirmButton } from "@stillwake/ui/parts/button.tsx";
import { Loaded } from "@stillwake/ui/parts/panel.tsx";
import { type Column, Table } from "@stillwake/ui/parts/table.tsx";
import { RelativeTime } from "@stillwake/ui/parts/time.tsx";
import { useState } from "react";
import { Link } from "wouter";
import { usePermissions } from "../../api/permissions.ts";
import { type api, useOccurrences } from "../../api/resources.ts";
import { Payload } from "../../parts/payload.tsx";
import { describeCron } from "./describe-cron.ts";

/** Occurrences are fired within a minute. */
export const isLate = ({ lateMs }: api.Schedule) => lateMs > 60_000;

const schedulePath = (name: string, rest = "") => `/v1/schedules/${encodeURIComponent(name)}${rest}`;

export function ScheduleTable({
  schedules,
  onEdit,
}: {
  schedules: api.Schedule[];
  onEdit: (schedule: api.Schedule) => void;
}) {
  const { manage } = usePermissions();
  const [open, setOpen] = useState<string>();
  const columns: Column<api.Schedule>[] = [
    { head: "Schedule", cell: (schedule) => <NameAndCron schedule={schedule} /> },
    {
      head: "Pipeline",
      width: "13%",
      cell: ({ pipeline }) => (
        <Link href={`/jobs?pipeline=${encodeURIComponent(pipeline)}`} className="untrusted">
          {escapeText(pipeline)}
        </Link>
      ),
    },
    { head: "Next", width: "15%", cell: (schedule) => <Next schedule={schedule} /> },
    { head: "Last job", width: "10%", cell: ({ last }) => <Last last={last} /> },
    { head: "Occurrences", width: "13%", cell: (schedule) => <OccurrenceCounts schedule={schedule} /> },
    {
      head: "Actions",
      width: manage ? "220px" : "128px",
      hideHead: true,
      cell: (schedule) => (
        <div className="actions">
          <Button
            aria-expanded={open === schedule.name}
            onClick={() => setOpen(open === schedule.name ? undefined : schedule.name)}
          >
            Next 10
          </Button>
          {manage && <PauseOrResume schedule={schedule} />}
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
      details={(schedule) =>
        (schedule.lastError !== null || open === schedule.name) && (
          <div className="schedule-details">
            {schedule.lastError !== null && (
              <div className="callout" data-tone="bad">
                <strong>The job could not be enqueued; retried every minute</strong>
                <span className="untrusted">{escapeText(schedule.lastError)}</span>
              </div>
            )}
            {open === schedule.name && <ScheduleDetails schedule={schedule} onEdit={() => onEdit(schedule)} />}
          </div>
        )
      }
    />
  );
}

function NameAndCron({ schedule: { name, cron, zone } }: { schedule: api.Schedule }) {
  const description = describeCron(cron);
  return (
    <div className="lines">
      <span className="untrusted">{escapeText(name)}</span>
      <span className="when">
        {description ?? <code className="untrusted">{escapeText(cron)}</code>}{" "}
        <span className="soft untrusted">{escapeText(zone)}</span>
      </span>
      {description && <code className="cron soft untrusted">{escapeText(cron)}</code>}
    </div>
  );
}

function Next({ schedule }: { schedule: api.Schedule }) {
  const { next, paused, lateMs, zone } = schedule;
  if (paused) {
    return (
      <div className="lines">
        <span className="tag" data-tone="amber">
          paused
        </span>
        <span className="soft untrusted">
          {paused.by !== null && `by ${escapeText(paused.by)} `}
          <RelativeTime at={paused.at} />
        </span>
      </div>
    );
  }
  if (next === null) return <span className="soft">never</span>;
  return (
    <div className="lines">
      {isLate(schedule) ? (
        <span className="tag" data-tone="amber">
          late by {formatDuration(Math.round(lateMs / 1000) * 1000)}
        </span>
      ) : (
        <RelativeTime at={next.at} />
      )}
      <span className="soft number">{formatInZone(zone, next)}</span>
    </div>
  );
}

/** The local time in the zone; if the browser does not know the zone, the occurrence as the server wrote it. */
function formatInZone(zone: string, { at, occurrence }: api.Occurrence): string {
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
    return escapeText(occurrence.replace("T", " "));
  }
}

function Last({ last }: { last: api.Schedule["last"] }) {
  if (!last) return <span className="soft">none yet</span>;
  return (
    <div className="lines">
      <Link href={`/jobs/${last.job}`} className="mono">
        {shortId(last.job)}
      </Link>
      <span className="soft">
        <RelativeTime at={last.at} />
      </span>
    </div>
  );
}

function OccurrenceCounts({ schedule: { fired, skipped, missed } }: { schedule: api.Schedule }) {
  return (
    <div className="lines number">
      <span>{plural(fired, "job")}</span>
      {skipped > 0 && <span className="soft">{formatCount(skipped)} skipped</span>}
      {missed > 0 && <span className="missed">{formatCount(missed)} missed</span>}
    </div>
  );
}

function PauseOrResume({ schedule: { name, paused } }: { schedule: api.Schedule }) {
  const { run, busy } = useAction();
  const [verb, done] = paused
    ? ["resume", `Schedule ${name} is resumed with its next occurrence`]
    : ["pause", `Schedule ${name} is paused`];
  return (
    <Button disabled={busy} onClick={() => run({ path: schedulePath(name, `/${verb}`), done })}>
      {paused ? "Resume" : "Pause"}
    </Button>
  );
}

function ScheduleDetails({ schedule, onEdit }: { schedule: api.Schedule; onEdit: () => void }) {
  const { manage } = usePermissions();
  const { run, busy } = useAction();
  const { name, zone, overlap, catchUp, input } = schedule;
  const occurrences = useOccurrences(name, 10, true);
  return (
    <div className="occurrences">
      <Loaded query={occurrences}>
        {(answer) =>
          answer.occurrences.length === 0 ? (
            <p className="soft">There are no further occurrences.</p>
          ) : (
            <ol className="occurrence-list">
              {answer.occurrences.map((occurrence) => (
                <li key={occurrence.occurrence}>
                  <span className="number">{formatInZone(zone, occurrence)}</span>
                  <span className="soft">
                    <RelativeTime at={occurrence.at} />
                  </span>
                </li>
              ))}
            </ol>
          )
        }
      </Loaded>
      <div className="occurrence-side">
        <dl className="facts">
          <dt>If the last job has not ended</dt>
          <dd>{overlapLabels[overlap] ?? escapeText(overlap)}</dd>
          <dt>Missed occurrences</dt>
          <dd>{catchUpLabels[catchUp] ?? escapeText(catchUp)}</dd>
        </dl>
        <Payload label="input" value={input} />
        {manage && (
          <div className="occurrence-actions">
            <Button onClick={onEdit}>Change…</Button>
            <ConfirmButton
              label="Remove…"
              title={`Remove schedule ${escapeText(name)}`}
              text="It enqueues no further jobs, and its counts are deleted. Existing jobs stay. If your code sets it, the next deploy creates it again."
              confirm="Remove"
              disabled={busy}
              onConfirm={() => run({ method: "DELETE", path: schedulePath(name), done: `Schedule ${name} is removed` })}
            />
          </div>
        )}
      </div>
    </div>
  );
}

export const overlapLabels: Record<string, string> = {
  skip: "Skip the new occurrence",
  queue: "Queue the new job behind it",
  replace: "Cancel the last job",
  allow: "Run both",
};

export const catchUpLabels: Record<string, string> = {
  one: "Enqueue a job for the latest",
  all: "Enqueue a job for each, in order",
  none: "Only count them",
};
