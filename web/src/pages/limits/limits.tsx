// The limits: what is free, what blocks, and until when.

import { useAction } from "@stillwake/ui/api/query.ts";
import type { RequestError } from "@stillwake/ui/api/request.ts";
import { escapeText, formatCount, formatDuration } from "@stillwake/ui/format.ts";
import { ConfirmButton } from "@stillwake/ui/parts/button.tsx";
import { Empty, Loaded, Panel } from "@stillwake/ui/parts/panel.tsx";
import { type Column, Table } from "@stillwake/ui/parts/table.tsx";
import { RelativeTime } from "@stillwake/ui/parts/time.tsx";
import type { UseQueryResult } from "@tanstack/react-query";
import { Link } from "wouter";
import { usePermissions } from "../../api/permissions.ts";
import { type api, useStats } from "../../api/resources.ts";
import { PipelineLinks } from "./pipeline-links.tsx";

export function LimitPanel({
  limits,
  pipelines,
}: {
  limits: UseQueryResult<{ limits: api.Limit[] }, RequestError>;
  pipelines: readonly api.Pipeline[];
}) {
  const { manage } = usePermissions();
  const waiting = useStats("1s", 1).data?.waiting.limit ?? 0;
  const columns: Column<api.Limit>[] = [
    { head: "Limit", width: "18%", cell: (limit) => <NameAndRule limit={limit} /> },
    { head: "Free now", width: "22%", cell: (limit) => <Free limit={limit} /> },
    { head: "Blocked by", cell: (limit) => <BlockedBy limit={limit} /> },
    {
      head: "Used by",
      width: "18%",
      cell: ({ name }) => <PipelineLinks pipelines={pipelines.filter(({ limits }) => limits.includes(name))} />,
    },
    ...(manage ? [{ head: "Actions", width: "104px", hideHead: true as const, cell: actions }] : []),
  ];
  const link = (
    <Link href="/jobs?state=queued" className="small">
      {waiting === 1 ? "1 job waits for a limit" : `${formatCount(waiting)} jobs wait for a limit`}
    </Link>
  );
  return (
    <Panel
      title="Limits"
      actions={waiting > 0 ? link : <span className="soft small">No job waits for a limit</span>}
      bare
    >
      <Loaded query={limits}>
        {({ limits: rows }) =>
          rows.length === 0 ? (
            <Empty title="No limits yet">
              <p>
                A limit shares the calls that a service allows among all workers, and learns the quota from its
                responses. While it is used up, jobs wait without occupying a worker.
              </p>
              <pre>{'const github = limit("github", { max: 5000, per: "1h", learn: rateLimitHeaders });'}</pre>
            </Empty>
          ) : (
            <Table label="Limits" columns={columns} rows={rows} keyOf={({ name }) => name} />
          )
        }
      </Loaded>
    </Panel>
  );
}

const periods: Record<number, string> = { 1000: "second", 60000: "minute", 3600000: "hour", 86400000: "day" };

function NameAndRule({ limit: { name, max, perMs, concurrency } }: { limit: api.Limit }) {
  return (
    <div className="lines">
      <span className="untrusted">{escapeText(name)}</span>
      <span className="rule soft">
        {[
          max !== null && perMs !== null && `${formatCount(max)} per ${periods[perMs] ?? formatDuration(perMs)}`,
          concurrency !== null && `${formatCount(concurrency)} at once`,
          max === null && concurrency === null && "reported by the service",
        ]
          .filter(Boolean)
          .join(", ")}
      </span>
    </div>
  );
}

/** The API returns at least this number if nothing limits it. */
const UNLIMITED = 1_000_000_000;

function Free({ limit: { free, max: configured, concurrency, reported } }: { limit: api.Limit }) {
  if (free >= UNLIMITED) return <>unlimited</>;
  // Several bounds can apply; the smallest is the maximum.
  const smallest = Math.min(...[configured, concurrency, reported?.max].filter((bound) => typeof bound === "number"));
  const max = Number.isFinite(smallest) ? Math.max(smallest, free) : undefined;
  return (
    <div className="lines">
      <span className="number">
        <strong>{formatCount(free)}</strong>
        {max !== undefined && ` of ${formatCount(max)}`}
      </span>
      {max !== undefined && (
        <span className="quota" data-gone={free === 0 || undefined} aria-hidden="true">
          <span style={{ width: `${max === 0 ? 0 : (100 * free) / max}%` }} />
        </span>
      )}
    </div>
  );
}

function BlockedBy({ limit: { free, until, reason, reported } }: { limit: api.Limit }) {
  return (
    <div className="lines">
      {free === 0 && (
        <span className="untrusted">
          <span className="tag" data-tone="amber">
            used up
          </span>{" "}
          {reason !== null && escapeText(reason)}
        </span>
      )}
      {free === 0 && (
        <span>
          {until ? (
            <>
              Free <RelativeTime at={until} />
            </>
          ) : (
            "Available when a running call returns"
          )}
        </span>
      )}
      {reported && (
        <span className="soft">
          Reported by the service: {formatCount(reported.remaining)}
          {reported.max !== null && ` of ${formatCount(reported.max)}`} left, resets{" "}
          <RelativeTime at={reported.resetAt} />
        </span>
      )}
      {free > 0 && !reported && <span className="soft">–</span>}
    </div>
  );
}

function actions(limit: api.Limit) {
  return <Reset limit={limit} />;
}

function Reset({ limit: { name } }: { limit: api.Limit }) {
  const { run, busy } = useAction();
  return (
    <div className="actions">
      <ConfirmButton
        label="Reset…"
        title={`Reset limit ${escapeText(name)}`}
        text="Deletes the quota and the block that the service reported; counted uses stay. Jobs that wait for it call the service again at once, which the service may count against you."
        confirm="Reset"
        quiet
        disabled={busy}
        onConfirm={() => run({ path: `/v1/limits/${encodeURIComponent(name)}/reset`, done: `Limit ${name} is reset` })}
      />
    </div>
  );
}
