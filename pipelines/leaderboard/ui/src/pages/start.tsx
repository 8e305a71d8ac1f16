// A repository is named and ranked; below, all that were.
import { type Pages, useAnswer } from "@stillwake/kit/ui/ask.ts";
import { Moment } from "@stillwake/kit/ui/parts/marks.tsx";
import { Older, useCursor } from "@stillwake/kit/ui/parts/older.tsx";
import { Empty, Panel, Shown } from "@stillwake/kit/ui/parts/panel.tsx";
import { SampleCard } from "@stillwake/kit/ui/parts/sample-card.tsx";
import { type Column, Table } from "@stillwake/kit/ui/parts/table.tsx";
import { count, inLine, several } from "@stillwake/kit/ui/parts/words.ts";
import { go, Link } from "@stillwake/kit/ui/place.tsx";
import type { Summary } from "../nouns.ts";
import { StateMark } from "../parts/marks.tsx";
import { RankForm } from "./rank.tsx";
import { Stuck } from "./stuck.tsx";

export function StartPage({ sample }: { sample: string | null }) {
  const cursor = useCursor();
  const answer = useAnswer<Pages<Summary>>(
    `leaderboard?limit=50${cursor ? `&cursor=${encodeURIComponent(cursor)}` : ""}`,
    { every: ({ rows }) => (rows.some(({ stage }) => stage !== null) ? 2000 : undefined) },
  );
  const listed = answer.data?.rows.filter((row) => row.stuck).map(({ id }) => id);
  const stuck = useAnswer<{ rows: Summary[] }>("stuck", {
    version: String(listed),
    every: ({ rows }) => (rows.length > 0 ? 30_000 : undefined),
  });
  const onChanged = () => {
    stuck.reload();
    answer.reload();
  };
  // What wants attention stands above all else, and comes with it: nothing is moved under a hand.
  if (!stuck.data && !stuck.error) return <h1 className="soft">One moment…</h1>;
  return (
    <>
      <div className="page-head">
        <h1>Leaderboards</h1>
      </div>
      <Stuck rows={stuck.data?.rows ?? []} onChanged={onChanged} />
      <RankForm />
      {sample !== null && (
        <SampleCard<{ id: string }> button="Rank the sample repository" onStarted={({ id }) => go(`boards/${id}`)}>
          <p>
            <span className="foreign">{inLine(sample)}</span> comes with this server, and so do its contributors. It
            needs no network and no account.
          </p>
        </SampleCard>
      )}
      <Panel title="All leaderboards">
        <Shown of={answer}>
          {({ rows, cursor: next, total }) =>
            rows.length === 0 ? (
              <Empty title="There is no leaderboard yet">
                <p>Name a repository above: its commits are counted at once, and you can watch it.</p>
              </Empty>
            ) : (
              <>
                <Table label="Leaderboards" columns={columns} rows={rows} keyOf={({ id }) => id} />
                <Older next={next} total={several(total, "leaderboard")} />
              </>
            )
          }
        </Shown>
      </Panel>
    </>
  );
}

const columns: Column<Summary>[] = [
  {
    head: "Repository",
    cell: ({ id, repository }) => (
      <Link to={`boards/${id}`} className="foreign">
        {inLine(repository)}
      </Link>
    ),
  },
  {
    head: "Status",
    width: "34%",
    cell: (board) => (
      <span className="lines">
        <StateMark board={board} />
        {board.stuck && <span className="soft">for more than an hour</span>}
        {board.error && <span className="bad foreign">{inLine(board.error)}</span>}
      </span>
    ),
  },
  {
    head: "Commits",
    width: "110px",
    number: true,
    cell: ({ commits, progress }) => <Figure of={progress?.done ?? commits} />,
  },
  { head: "Authors", width: "110px", number: true, cell: ({ authors }) => <Figure of={authors} /> },
  { head: "When", width: "120px", cell: ({ times }) => <Moment at={times.updatedAt} /> },
];

function Figure({ of }: { of: number | null }) {
  return of === null ? <span className="soft">–</span> : count(of);
}
