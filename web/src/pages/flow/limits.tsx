// Limits: what is left of each, and until when those wait who need more.
import type { UseQueryResult } from "@tanstack/react-query";
import { Link } from "wouter";
import { useAct } from "../../api/ask.ts";
import type { Refused } from "../../api/call.ts";
import { type nouns, useStats } from "../../api/nouns.ts";
import { useMay } from "../../api/who.ts";
import { Ask } from "../../parts/button.tsx";
import { Moment } from "../../parts/moment.tsx";
import { Asked, Empty, Panel } from "../../parts/panel.tsx";
import { type Column, Table } from "../../parts/table.tsx";
import { count, inert, span } from "../../parts/words.ts";
import { Users } from "./users.tsx";

export function LimitPanel({
  limits,
  pipelines,
}: {
  limits: UseQueryResult<{ limits: nouns.Limit[] }, Refused>;
  pipelines: readonly nouns.Pipeline[];
}) {
  const may = useMay();
  const waiting = useStats("1s", 1).data?.waiting.limit ?? 0;
  const columns: Column<nouns.Limit>[] = [
    { head: "Limit", width: "18%", cell: (limit) => <NameAndRule limit={limit} /> },
    { head: "Free now", width: "22%", cell: (limit) => <Free limit={limit} /> },
    { head: "What holds", cell: (limit) => <Holds limit={limit} /> },
    {
      head: "Needed by",
      width: "18%",
      cell: ({ name }) => <Users pipelines={pipelines.filter(({ limits }) => limits.includes(name))} />,
    },
    ...(may.manage ? [{ head: "Acts", width: "104px", quiet: true as const, cell: acts }] : []),
  ];
  const link = (
    <Link href="/jobs?state=queued" className="small">
      {waiting === 1 ? "1 job waits for a limit" : `${count(waiting)} jobs wait for a limit`}
    </Link>
  );
  return (
    <Panel title="Limits" acts={waiting > 0 ? link : <span className="soft small">No job waits for a limit</span>} bare>
      <Asked of={limits}>
        {(answer) =>
          answer.limits.length === 0 ? (
            <Empty title="No limit yet">
              <p>
                A limit shares the calls that a service allows among all workers, and learns them from its answers. A
                job that finds it used up waits without a worker.
              </p>
              <pre>{'const github = limit("github", { max: 5000, per: "1h", learn: rateLimitHeaders });'}</pre>
            </Empty>
          ) : (
            <Table label="Limits" columns={columns} rows={answer.limits} keyOf={({ name }) => name} />
          )
        }
      </Asked>
    </Panel>
  );
}

const periods: Record<number, string> = { 1000: "second", 60000: "minute", 3600000: "hour", 86400000: "day" };

function NameAndRule({ limit: { name, max, perMs, concurrency } }: { limit: nouns.Limit }) {
  return (
    <div className="lines">
      <span className="foreign">{inert(name)}</span>
      <span className="rule soft">
        {[
          max !== null && perMs !== null && `${count(max)} per ${periods[perMs] ?? span(perMs)}`,
          concurrency !== null && `${count(concurrency)} at once`,
          max === null && concurrency === null && "as the service says",
        ]
          .filter(Boolean)
          .join(", ")}
      </span>
    </div>
  );
}

/** More than anything can have: nothing is known that would hold it. */
const BOUNDLESS = 1_000_000_000;

function Free({ limit: { free, max, concurrency, told } }: { limit: nouns.Limit }) {
  if (free >= BOUNDLESS) return <>no bound is known</>;
  // Several may hold at once, and the smallest says how many there can be.
  const most = Math.min(...[max, concurrency, told?.max].filter((one) => typeof one === "number"));
  const whole = Number.isFinite(most) ? Math.max(most, free) : undefined;
  return (
    <div className="lines">
      <span className="number">
        <strong>{count(free)}</strong>
        {whole !== undefined && ` of ${count(whole)}`}
      </span>
      {whole !== undefined && (
        <span className="budget" data-gone={free === 0 || undefined} aria-hidden="true">
          <span style={{ width: `${whole === 0 ? 0 : (100 * free) / whole}%` }} />
        </span>
      )}
    </div>
  );
}

function Holds({ limit: { free, until, reason, told } }: { limit: nouns.Limit }) {
  return (
    <div className="lines">
      {free === 0 && (
        <span className="foreign">
          <span className="tag" data-tone="amber">
            used up
          </span>{" "}
          {reason !== null && inert(reason)}
        </span>
      )}
      {free === 0 && (
        <span>
          {until ? (
            <>
              Free again <Moment at={until} />
            </>
          ) : (
            "Free again when a call that is under way is answered"
          )}
        </span>
      )}
      {told && (
        <span className="soft">
          The service says: {count(told.remaining)}
          {told.max !== null && ` of ${count(told.max)}`} left, anew <Moment at={told.resetAt} />
        </span>
      )}
      {free > 0 && !told && <span className="soft">Nothing</span>}
    </div>
  );
}

function acts(limit: nouns.Limit) {
  return <Reset limit={limit} />;
}

function Reset({ limit: { name } }: { limit: nouns.Limit }) {
  const { act, busy } = useAct();
  return (
    <div className="acts">
      <Ask
        label="Reset…"
        title={`Reset the limit ${inert(name)}`}
        text="What the service has told of its budget is forgotten, and a refusal too; uses that were counted stay. Jobs that wait for that call again at once: if the service still refuses, it may count that against you."
        yes="Reset it"
        quiet
        disabled={busy}
        onYes={() => act({ path: `/v1/limits/${encodeURIComponent(name)}/reset`, done: `Limit ${name} begins anew` })}
      />
    </div>
  );
}
