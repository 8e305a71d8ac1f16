// All repositories, how the last extraction of each went, and the way to add one.
import { SEVERITIES } from "../../../src/model.ts";
import { useAct, useAnswer } from "../ask.ts";
import { type AllCosts, type OneProject, type Pages, PROVIDERS } from "../nouns.ts";
import { Moment, SeverityTag, StatusMark } from "../parts/marks.tsx";
import { useNow } from "../parts/now.ts";
import { Empty, Panel, Shown, Wrong } from "../parts/panel.tsx";
import { type Column, Table } from "../parts/table.tsx";
import { count, inLine, money, several, took } from "../parts/words.ts";
import { go, Link, placeWith, usePlace } from "../place.tsx";
import { AddForm } from "./add.tsx";

const STATUS_WORDS = {
  new: "not extracted yet",
  extracting: "extracting",
  ready: "ready",
  failed: "failed",
  cancelled: "cancelled",
};

export function ListPage({ sample }: { sample: string | null }) {
  const place = usePlace();
  const cursor = new URLSearchParams(place.split("?")[1]).get("cursor");
  const moving = ({ rows }: Pages<OneProject>) => (rows.some(({ status }) => status === "extracting") ? 2000 : 30_000);
  const answer = useAnswer<Pages<OneProject>>(
    `projects?limit=50${cursor ? `&cursor=${encodeURIComponent(cursor)}` : ""}`,
    { every: moving },
  );
  return (
    <>
      <div className="page-head">
        <h1>Repositories</h1>
        <CostNote />
      </div>
      {sample !== null && <SampleCard name={sample} />}
      <Panel title="All repositories">
        <Shown of={answer}>
          {({ rows, cursor: next, total }) =>
            rows.length === 0 ? (
              <Empty title="There is no repository yet">
                <p>Add one below. Its first extraction starts at once, and you can watch it.</p>
              </Empty>
            ) : (
              <>
                <Table label="Repositories" columns={columns} rows={rows} keyOf={({ id }) => id} />
                {(next || cursor) && (
                  <div className="foot">
                    <span className="soft small">{several(total, "repository", "repositories")}</span>
                    <span className="acts">
                      <button
                        type="button"
                        className="button"
                        disabled={!cursor}
                        onClick={() => go(placeWith(place, { cursor: null }))}
                      >
                        Newest
                      </button>
                      <button
                        type="button"
                        className="button"
                        disabled={!next}
                        onClick={() => go(placeWith(place, { cursor: next }))}
                      >
                        Older
                      </button>
                    </span>
                  </div>
                )}
              </>
            )
          }
        </Shown>
      </Panel>
      <AddForm />
    </>
  );
}

const columns: Column<OneProject>[] = [
  {
    head: "Repository",
    cell: ({ id, name, provider, repository, packagePath }) => (
      <span className="lines">
        <Link to={`projects/${id}`} className="foreign">
          {inLine(name)}
        </Link>
        <span className="soft foreign">
          {PROVIDERS[provider]} · {inLine(repository)}
          {packagePath !== "." && ` · ${inLine(packagePath)}`}
        </span>
      </span>
    ),
  },
  {
    head: "Status",
    width: "24%",
    cell: ({ status, error }) => (
      <span className="lines">
        <StatusMark status={status} word={STATUS_WORDS[status]} />
        {error && <span className="bad foreign">{inLine(error)}</span>}
      </span>
    ),
  },
  { head: "Vulnerabilities", width: "22%", cell: (project) => <Found project={project} /> },
  { head: "Dependencies", width: "120px", number: true, cell: ({ dependencies }) => count(dependencies) },
  { head: "Last extraction", width: "150px", cell: ({ extraction }) => <Last extraction={extraction} /> },
];

function Found({ project: { vulnerabilities, looked } }: { project: OneProject }) {
  const found = SEVERITIES.filter((severity) => vulnerabilities[severity]);
  if (found.length > 0) {
    return (
      <span className="tags">
        {found.map((severity) => (
          <SeverityTag key={severity} severity={severity} number={vulnerabilities[severity]!} />
        ))}
      </span>
    );
  }
  return <span className="soft">{looked.vulnerabilities ? "none found" : "–"}</span>;
}

function Last({ extraction }: { extraction: OneProject["extraction"] }) {
  const now = useNow();
  if (!extraction) return <span className="soft">–</span>;
  const time = took(extraction.startedAt, extraction.endedAt, now);
  return (
    <span className="lines">
      <Moment at={extraction.endedAt ?? extraction.createdAt} />
      {time && <span className="soft number">{extraction.endedAt ? `took ${time}` : `for ${time}`}</span>}
    </span>
  );
}

function SampleCard({ name }: { name: string }) {
  const { act, busy, wrong } = useAct();
  const start = async () => {
    const started = await act<{ project: string }>("POST", "sample");
    if (started) go(`projects/${started.project}`);
  };
  return (
    <section className="panel card" aria-labelledby="sample">
      <div className="lines">
        <h2 id="sample">See it work</h2>
        <p>
          <span className="foreign">{inLine(name)}</span> comes with this server, with a few weaknesses to find. It
          needs no network and no account.
        </p>
        {wrong && <Wrong error={wrong} />}
      </div>
      <button
        type="button"
        className="button"
        data-kind="main"
        data-size="large"
        disabled={busy}
        onClick={() => void start()}
      >
        Extract the sample repository
      </button>
    </section>
  );
}

/** What was paid this month, and what is paid for machines that wait. Silent where nothing has a price. */
function CostNote() {
  const { data } = useAnswer<AllCosts>("costs");
  if (!data || (data.month.amount === 0 && data.idlePools.every(({ perMonth }) => perMonth === 0))) return null;
  const idle = data.idlePools.filter(({ machines }) => machines > 0);
  return (
    <p className="soft small cost-note">
      This month {money(data.month.amount)} for {several(data.month.extractions, "extraction")}.
      {idle.map(({ pool, machines, perMonth }) => (
        <span key={pool}>
          {" "}
          {several(machines, "stopped machine")} of pool {inLine(pool)}: {money(perMonth)} a month.
        </span>
      ))}
    </p>
  );
}
