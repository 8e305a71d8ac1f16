// All repositories, how the last extraction of each went, and the way to add one.
import { type Pages, useAnswer } from "@stillwake/kit/ui/ask.ts";
import { Moment } from "@stillwake/kit/ui/parts/marks.tsx";
import { useNow } from "@stillwake/kit/ui/parts/now.ts";
import { Older, useCursor } from "@stillwake/kit/ui/parts/older.tsx";
import { Empty, Panel, Shown } from "@stillwake/kit/ui/parts/panel.tsx";
import { SampleCard } from "@stillwake/kit/ui/parts/sample-card.tsx";
import { type Column, Table } from "@stillwake/kit/ui/parts/table.tsx";
import { count, inLine, several, took } from "@stillwake/kit/ui/parts/words.ts";
import { go, Link } from "@stillwake/kit/ui/place.tsx";
import { SEVERITIES } from "../../../src/model.ts";
import { type AllCosts, type Integrations, type OneProject, PROVIDERS } from "../nouns.ts";
import { SeverityTag, StatusMark } from "../parts/marks.tsx";
import { money } from "../parts/words.ts";
import { AddForm } from "./add.tsx";
import { Credentials } from "./credentials.tsx";

const STATUS_WORDS = {
  new: "not extracted yet",
  extracting: "extracting",
  ready: "ready",
  failed: "failed",
  cancelled: "cancelled",
};

export function ListPage({ sample }: { sample: string | null }) {
  const cursor = useCursor();
  const moving = ({ rows }: Pages<OneProject>) => (rows.some(({ status }) => status === "extracting") ? 2000 : 30_000);
  const answer = useAnswer<Pages<OneProject>>(
    `projects?limit=50${cursor ? `&cursor=${encodeURIComponent(cursor)}` : ""}`,
    { every: moving },
  );
  const integrations = useAnswer<Integrations>("integrations");
  return (
    <>
      <div className="page-head">
        <h1>Repositories</h1>
        <CostNote />
      </div>
      {sample !== null && (
        <SampleCard<{ project: string }>
          button="Extract the sample repository"
          onStarted={({ project }) => go(`projects/${project}`)}
        >
          <p>
            <span className="foreign">{inLine(sample)}</span> comes with this server, with a few weaknesses to find. It
            needs no network and no account.
          </p>
        </SampleCard>
      )}
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
                <Older next={next} total={several(total, "repository", "repositories")} />
              </>
            )
          }
        </Shown>
      </Panel>
      <AddForm integrations={integrations.data?.integrations ?? []} />
      <Panel title="Organization Settings">
        <Credentials integrations={integrations} />
      </Panel>
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
