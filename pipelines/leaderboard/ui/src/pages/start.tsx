// All leaderboards, and the form that ranks a repository. Leaderboards that make no progress are listed first.
import { useApiQuery } from "@stillwake/ui/api/query.ts";
import { escapeLine, formatCount, plural } from "@stillwake/ui/format.ts";
import { Pager, useCursor } from "@stillwake/ui/parts/pager.tsx";
import { Empty, Loaded, PageHead, Panel } from "@stillwake/ui/parts/panel.tsx";
import { SampleCard } from "@stillwake/ui/parts/sample-card.tsx";
import { StateBadge } from "@stillwake/ui/parts/state-badge.tsx";
import { type Column, Table } from "@stillwake/ui/parts/table.tsx";
import { RelativeTime } from "@stillwake/ui/parts/time.tsx";
import { Link, useLocation } from "wouter";
import { boardState, type Page, type Summary } from "../types.ts";
import { LookUpAgain } from "./look-up-again.tsx";
import { RankForm } from "./rank-form.tsx";

export function StartPage({ sample }: { sample: string | null }) {
  const [, navigate] = useLocation();
  const boards = useApiQuery<Page<Summary>>("api/leaderboard", {
    query: { limit: 50, cursor: useCursor() },
    once: ({ rows }) => rows.every(({ stage }) => stage === null),
  });
  const stuckIds = boards.data?.rows.filter((row) => row.stuck).map(({ id }) => id);
  const stuck = useApiQuery<{ rows: Summary[] }>("api/stuck", {
    version: String(stuckIds),
    once: ({ rows }) => rows.length === 0,
    changing: () => false,
  });
  // The alert is at the top: rendered together with the rest, so that nothing moves.
  if (!stuck.data && !stuck.error) return <p className="soft">Loading…</p>;
  return (
    <>
      <PageHead title="Leaderboards" />
      <StuckBoards rows={stuck.data?.rows ?? []} />
      <RankForm />
      {sample !== null && (
        <SampleCard<{ id: string }>
          button="Rank the sample repository"
          onStarted={({ id }) => navigate(`/boards/${id}`)}
        >
          <p>
            <span className="untrusted">{escapeLine(sample)}</span> is included in this server, with its contributors.
            It needs no network and no account.
          </p>
        </SampleCard>
      )}
      <Panel title="All leaderboards" bare>
        <Loaded query={boards}>
          {({ rows, cursor, total }) =>
            rows.length === 0 ? (
              <Empty title="No leaderboards yet">
                <p>Enter a repository above. Its commits are counted at once, and you can follow the log.</p>
              </Empty>
            ) : (
              <>
                <Table label="Leaderboards" columns={columns} rows={rows} keyOf={({ id }) => id} />
                <Pager next={cursor} total={plural(total, "leaderboard")} />
              </>
            )
          }
        </Loaded>
      </Panel>
    </>
  );
}

const columns: Column<Summary>[] = [
  {
    head: "Repository",
    cell: ({ id, repository }) => (
      <Link href={`/boards/${id}`} className="untrusted">
        {escapeLine(repository)}
      </Link>
    ),
  },
  {
    head: "Status",
    width: "34%",
    cell: (board) => {
      const [state, label] = boardState(board);
      return (
        <span className="lines">
          <StateBadge state={state}>{label}</StateBadge>
          {board.stuck && <span className="soft">for more than an hour</span>}
          {board.error && <span className="bad untrusted">{escapeLine(board.error)}</span>}
        </span>
      );
    },
  },
  {
    head: "Commits",
    width: "110px",
    number: true,
    cell: ({ commits, progress }) => <Count value={progress?.done ?? commits} />,
  },
  { head: "Authors", width: "110px", number: true, cell: ({ authors }) => <Count value={authors} /> },
  { head: "Updated", width: "120px", cell: ({ times }) => <RelativeTime at={times.updatedAt} /> },
];

function Count({ value }: { value: number | null }) {
  return value === null ? <span className="soft">–</span> : formatCount(value);
}

function StuckBoards({ rows }: { rows: readonly Summary[] }) {
  if (rows.length === 0) return null;
  return (
    <section className="callout" data-tone="amber" role="alert">
      {rows.map((board) => {
        const name = escapeLine(board.repository);
        return (
          <div key={board.id} className="stuck">
            <span>
              <Link href={`/boards/${board.id}`} className="untrusted">
                {name}
              </Link>{" "}
              has been in progress for more than an hour.
            </span>
            {board.stage === "users" && <LookUpAgain board={board} repository={name} />}
          </div>
        );
      })}
    </section>
  );
}
