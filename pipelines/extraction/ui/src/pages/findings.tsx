// The result lists: vulnerabilities, findings in code, dependencies. Each has the results of its last successful scan.
import { escapeLine, formatPercent, plural, safeLink } from "@stillwake/ui/format.ts";
import type { Column } from "@stillwake/ui/parts/table.tsx";
import { SEVERITIES } from "../../../src/model.ts";
import { SeverityTag } from "../parts/badges.tsx";
import { PagedList, type SelectFilter } from "../parts/paged-list.tsx";
import type { Dependency, Finding, Vulnerability } from "../types.ts";
import { CoverageCallout, EmptyList, ListAge } from "./list-age.tsx";
import type { TabProps } from "./tabs.tsx";

const severities: SelectFilter = {
  name: "severity",
  label: "Severity",
  options: [["", "All"], ...SEVERITIES.map((severity) => [severity, severity] as const)],
};

export function VulnerabilityList({ project, version }: TabProps) {
  const coverage = project.looked.vulnerabilities?.coverage;
  const none =
    coverage && coverage.checked < coverage.total
      ? `No known vulnerabilities in the ${plural(coverage.checked, "dependency", "dependencies")} that ${coverage.checked === 1 ? "was" : "were"} checked`
      : "No known vulnerabilities";
  return (
    <>
      <CoverageCallout project={project} />
      <ListAge project={project} lists={["vulnerabilities"]} />
      <PagedList<Vulnerability>
        label="Vulnerabilities"
        path={`api/projects/${project.id}/vulnerabilities`}
        version={version}
        columns={vulnerabilityColumns}
        keyOf={({ id, purl }) => `${id} ${purl}`}
        filters={[
          severities,
          {
            name: "kev",
            label: "Exploited",
            options: [
              ["", "All"],
              ["true", "known"],
              ["false", "not known"],
            ],
          },
        ]}
        searchLabel="Search by package, version or id"
        empty={<EmptyList project={project} texts={{ vulnerabilities: none }} />}
      />
    </>
  );
}

const vulnerabilityColumns: Column<Vulnerability>[] = [
  {
    head: "Vulnerability",
    cell: ({ id, cve, url, summary, severity }) => (
      <span className="lines">
        <span className="tags">
          <SeverityTag severity={severity} />
          <Id id={id} url={url} />
          {cve !== null && cve !== id && <span className="soft mono untrusted">{escapeLine(cve)}</span>}
        </span>
        <span className="soft untrusted">{escapeLine(summary)}</span>
      </span>
    ),
  },
  {
    head: "Package",
    width: "20%",
    cell: ({ name, version }) => (
      <span className="mono untrusted">
        {escapeLine(name)}@{escapeLine(version)}
      </span>
    ),
  },
  {
    head: "Fixed in",
    width: "12%",
    cell: ({ fixed }) =>
      fixed.length > 0 ? (
        <span className="mono untrusted">{fixed.map(escapeLine).join(", ")}</span>
      ) : (
        <span className="soft">no fix known</span>
      ),
  },
  {
    head: "EPSS",
    width: "130px",
    cell: ({ epss, percentile: rank }) =>
      epss === null ? (
        <span className="soft">–</span>
      ) : (
        <span className="lines">
          <span className="number">{formatPercent(epss)}</span>
          {rank !== null && <span className="soft number">{formatPercentile(rank)}</span>}
        </span>
      ),
  },
  { head: "Known exploited", width: "140px", cell: ({ kev }) => <Exploited kev={kev} /> },
  {
    head: "Reachable",
    width: "100px",
    cell: ({ reachable }) => (reachable === null ? <span className="soft">unknown</span> : reachable ? "yes" : "no"),
  },
];

function Exploited({ kev }: Pick<Vulnerability, "kev">) {
  if (kev === null) return <span className="soft">–</span>;
  return (
    <span className="lines">
      <span className="tag" data-severity="critical" title="In CISA's catalogue of known exploited vulnerabilities">
        KEV
      </span>
      <span className="soft number">since {escapeLine(kev.added)}</span>
      {kev.ransomware && <span className="bad">used by ransomware</span>}
    </span>
  );
}

function Id({ id, url }: Pick<Vulnerability, "id" | "url">) {
  const link = safeLink(url);
  if (!link) return <span className="mono untrusted">{escapeLine(id)}</span>;
  return (
    <a className="mono untrusted" href={link} target="_blank" rel="noopener noreferrer">
      {escapeLine(id)}
    </a>
  );
}

export function FindingList({ project, version }: TabProps) {
  return (
    <>
      <ListAge project={project} lists={["code", "secrets"]} />
      <PagedList<Finding>
        label="Code and secrets"
        path={`api/projects/${project.id}/findings`}
        version={version}
        columns={findingColumns}
        keyOf={({ kind, fingerprint }) => `${kind} ${fingerprint}`}
        filters={[
          {
            name: "kind",
            label: "Kind",
            options: [
              ["", "All"],
              ["code", "code"],
              ["secret", "secrets"],
            ],
          },
          severities,
        ]}
        searchLabel="Search by rule, path or text"
        empty={<EmptyList project={project} texts={{ code: "No findings in the code", secrets: "No secrets found" }} />}
      />
    </>
  );
}

const findingColumns: Column<Finding>[] = [
  {
    head: "Finding",
    cell: ({ severity, kind, rule, message }) => (
      <span className="lines">
        <span className="tags">
          <SeverityTag severity={severity} />
          <span className="tag">{kind === "secret" ? "secret" : "code"}</span>
          <span className="mono untrusted">{escapeLine(rule)}</span>
        </span>
        <span className="soft untrusted">{escapeLine(message)}</span>
      </span>
    ),
  },
  {
    head: "Where",
    width: "32%",
    cell: ({ path, line }) => (
      <span className="mono untrusted">
        {escapeLine(path)}:{line}
      </span>
    ),
  },
  {
    head: "CWE",
    width: "110px",
    cell: ({ cwe }) => (cwe.length > 0 ? cwe.map(escapeLine).join(", ") : <span className="soft">–</span>),
  },
  { head: "Found by", width: "120px", cell: ({ engine }) => escapeLine(engine) },
];

export function DependencyList({ project, version }: TabProps) {
  return (
    <>
      <ListAge project={project} lists={["dependencies"]} />
      <PagedList<Dependency>
        label="Dependencies"
        path={`api/projects/${project.id}/dependencies`}
        version={version}
        columns={dependencyColumns}
        keyOf={({ purl }) => purl}
        filters={[
          {
            name: "direct",
            label: "Shown",
            options: [
              ["", "All"],
              ["true", "direct"],
              ["false", "transitive"],
            ],
          },
        ]}
        searchLabel="Search by name or version"
        empty={<EmptyList project={project} texts={{ dependencies: "No known dependencies" }} />}
      />
    </>
  );
}

const dependencyColumns: Column<Dependency>[] = [
  { head: "Name", cell: ({ name }) => <span className="mono untrusted">{escapeLine(name)}</span> },
  {
    head: "Version",
    width: "20%",
    cell: ({ version }) => <span className="mono untrusted">{escapeLine(version)}</span>,
  },
  { head: "Ecosystem", width: "120px", cell: ({ ecosystem }) => escapeLine(ecosystem) },
  { head: "Kind", width: "120px", cell: ({ direct }) => (direct ? "direct" : "transitive") },
  {
    head: "Licences",
    width: "22%",
    cell: ({ licenses }) =>
      licenses.length > 0 ? (
        <span className="untrusted">{licenses.map(escapeLine).join(", ")}</span>
      ) : (
        <span className="soft">–</span>
      ),
  },
];

/** "99th percentile". */
function formatPercentile(part: number): string {
  const value = Math.floor(part * 100);
  const lastTwo = value % 100;
  const suffix = lastTwo > 10 && lastTwo < 14 ? "th" : (["th", "st", "nd", "rd"][value % 10] ?? "th");
  return `${value}${suffix} percentile`;
}
