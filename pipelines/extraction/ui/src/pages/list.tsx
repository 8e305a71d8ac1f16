// All repositories with their last extraction, and the forms that add a repository and store credentials.
import { useApiQuery } from "@stillwake/ui/api/query.ts";
import { escapeLine, formatCount, formatMoney, plural } from "@stillwake/ui/format.ts";
import { Pager, useCursor } from "@stillwake/ui/parts/pager.tsx";
import { Empty, Loaded, PageHead, Panel } from "@stillwake/ui/parts/panel.tsx";
import { SampleCard } from "@stillwake/ui/parts/sample-card.tsx";
import { type Column, Table } from "@stillwake/ui/parts/table.tsx";
import { Duration, RelativeTime } from "@stillwake/ui/parts/time.tsx";
import { Link, useLocation } from "wouter";
import { SEVERITIES } from "../../../src/model.ts";
import { ProjectBadge, SeverityTag } from "../parts/badges.tsx";
import { type Costs, type Integration, type Page, PROVIDERS, type Project } from "../types.ts";
import { AddForm } from "./add.tsx";
import { Credentials } from "./credentials.tsx";

export function ListPage({ sample }: { sample: string | null }) {
  const [, navigate] = useLocation();
  const projects = useApiQuery<Page<Project>>("api/projects", {
    query: { limit: 50, cursor: useCursor() },
    changing: ({ rows }) => rows.some(({ status }) => status === "extracting"),
  });
  const integrations = useApiQuery<{ integrations: Integration[] }>("api/integrations", { once: true });
  return (
    <>
      <PageHead title="Repositories">
        <CostNote />
      </PageHead>
      {sample !== null && (
        <SampleCard<{ project: string }>
          button="Extract the sample repository"
          onStarted={({ project }) => navigate(`/projects/${project}`)}
        >
          <p>
            <span className="untrusted">{escapeLine(sample)}</span> is included in this server and has a few
            vulnerabilities. It needs no network and no account.
          </p>
        </SampleCard>
      )}
      <Panel title="All repositories" bare>
        <Loaded query={projects}>
          {({ rows, cursor, total }) =>
            rows.length === 0 ? (
              <Empty title="No repositories yet">
                <p>Add one below. Its first extraction starts at once, and you can follow its log.</p>
              </Empty>
            ) : (
              <>
                <Table label="Repositories" columns={columns} rows={rows} keyOf={({ id }) => id} />
                <Pager next={cursor} total={plural(total, "repository", "repositories")} />
              </>
            )
          }
        </Loaded>
      </Panel>
      <AddForm integrations={integrations.data?.integrations ?? []} />
      <Panel title="Organization Settings" bare>
        <Credentials integrations={integrations} />
      </Panel>
    </>
  );
}

const columns: Column<Project>[] = [
  {
    head: "Repository",
    cell: ({ id, name, provider, repository, packagePath }) => (
      <span className="lines">
        <Link href={`/projects/${id}`} className="untrusted">
          {escapeLine(name)}
        </Link>
        <span className="soft untrusted">
          {PROVIDERS[provider]} · {escapeLine(repository)}
          {packagePath !== "." && ` · ${escapeLine(packagePath)}`}
        </span>
      </span>
    ),
  },
  {
    head: "Status",
    width: "24%",
    cell: ({ status, error }) => (
      <span className="lines">
        <ProjectBadge status={status} />
        {error && <span className="bad untrusted">{escapeLine(error)}</span>}
      </span>
    ),
  },
  { head: "Vulnerabilities", width: "22%", cell: (project) => <VulnerabilityCounts project={project} /> },
  { head: "Dependencies", width: "120px", number: true, cell: ({ dependencies }) => formatCount(dependencies) },
  { head: "Last extraction", width: "150px", cell: ({ extraction }) => <LastExtraction extraction={extraction} /> },
];

function VulnerabilityCounts({ project: { vulnerabilities, looked, status } }: { project: Project }) {
  const found = SEVERITIES.filter((severity) => vulnerabilities[severity]);
  const { coverage } = looked.vulnerabilities ?? {};
  const isPartial = coverage && coverage.checked < coverage.total;
  if (!looked.vulnerabilities && status === "ready")
    return (
      <span className="tags">
        <span className="tag" data-tone="amber">
          not checked
        </span>
      </span>
    );
  if (found.length === 0) {
    if (!looked.vulnerabilities) return <span className="soft">–</span>;
    return (
      <span className="soft">
        {isPartial ? `none found in ${coverage.checked} of ${coverage.total}` : "none found"}
      </span>
    );
  }
  return (
    <span className="tags">
      {found.map((severity) => (
        <SeverityTag key={severity} severity={severity} number={vulnerabilities[severity]!} />
      ))}
    </span>
  );
}

function LastExtraction({ extraction }: { extraction: Project["extraction"] }) {
  if (!extraction) return <span className="soft">–</span>;
  const { createdAt, startedAt, endedAt } = extraction;
  return (
    <span className="lines">
      <RelativeTime at={endedAt ?? createdAt} />
      {startedAt && (
        <span className="soft">
          {endedAt ? "took" : "for"} <Duration from={startedAt} to={endedAt} />
        </span>
      )}
    </span>
  );
}

/** The cost of this month and of stopped machines. Not shown if nothing has a price. */
function CostNote() {
  const { data } = useApiQuery<Costs>("api/costs", { once: true });
  if (!data || (data.month.amount === 0 && data.idlePools.every(({ perMonth }) => perMonth === 0))) return null;
  const idlePools = data.idlePools.filter(({ machines }) => machines > 0);
  return (
    <p className="soft small">
      This month {formatMoney(data.month.amount)} for {plural(data.month.extractions, "extraction")}.
      {idlePools.map(({ pool, machines, perMonth }) => (
        <span key={pool}>
          {" "}
          {plural(machines, "stopped machine")} of pool {escapeLine(pool)}: {formatMoney(perMonth)} per month.
        </span>
      ))}
    </p>
  );
}
