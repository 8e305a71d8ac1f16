// The lists of what was found: vulnerabilities the worst first, places in the code, dependencies. They are those of the last extraction that could look.
import type { Column } from "@stillwake/kit/ui/parts/table.tsx";
import { inLine, percent, safeLink } from "@stillwake/kit/ui/parts/words.ts";
import { SEVERITIES } from "../../../src/model.ts";
import type { OneDependency, OneFinding, OneVulnerability } from "../nouns.ts";
import { SeverityTag } from "../parts/marks.tsx";
import { type Choice, PagedList } from "../parts/paged-list.tsx";
import { percentile } from "../parts/words.ts";
import { Age, Nothing } from "./age.tsx";
import type { TabProps } from "./tabs.tsx";

const severities: Choice = {
  name: "severity",
  label: "Severity",
  options: [["", "All"], ...SEVERITIES.map((one) => [one, one] as const)],
};

export function VulnerabilityList({ project, version }: TabProps) {
  return (
    <>
      <Age project={project} lists={["vulnerabilities"]} />
      <PagedList<OneVulnerability>
        label="Vulnerabilities"
        path={`projects/${project.id}/vulnerabilities`}
        version={version}
        columns={vulnerabilityColumns}
        keyOf={({ id, purl }) => `${id} ${purl}`}
        choices={[
          severities,
          {
            name: "kev",
            label: "Exploited",
            options: [
              ["", "All"],
              ["true", "known to be"],
              ["false", "not known to be"],
            ],
          },
        ]}
        search="Search by package, version or id"
        empty={<Nothing project={project} none={{ vulnerabilities: "No vulnerability is known" }} />}
      />
    </>
  );
}

const vulnerabilityColumns: Column<OneVulnerability>[] = [
  {
    head: "Vulnerability",
    cell: ({ id, cve, url, summary, severity }) => (
      <span className="lines">
        <span className="tags">
          <SeverityTag severity={severity} />
          <Id id={id} url={url} />
          {cve !== null && cve !== id && <span className="soft mono foreign">{inLine(cve)}</span>}
        </span>
        <span className="soft foreign">{inLine(summary)}</span>
      </span>
    ),
  },
  {
    head: "Package",
    width: "20%",
    cell: ({ name, version }) => (
      <span className="mono foreign">
        {inLine(name)}@{inLine(version)}
      </span>
    ),
  },
  {
    head: "Fixed in",
    width: "12%",
    cell: ({ fixed }) =>
      fixed.length > 0 ? (
        <span className="mono foreign">{fixed.map(inLine).join(", ")}</span>
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
          <span className="number">{percent(epss)}</span>
          {rank !== null && <span className="soft number">{percentile(rank)}</span>}
        </span>
      ),
  },
  { head: "Known exploited", width: "140px", cell: ({ kev }) => <Exploited kev={kev} /> },
  {
    head: "Reachable",
    width: "100px",
    cell: ({ reachable }) => (reachable === null ? <span className="soft">not known</span> : reachable ? "yes" : "no"),
  },
];

function Exploited({ kev }: Pick<OneVulnerability, "kev">) {
  if (kev === null) return <span className="soft">–</span>;
  return (
    <span className="lines">
      <span className="tag" data-severity="critical" title="In CISA's catalogue of known exploited vulnerabilities">
        KEV
      </span>
      <span className="soft number">since {inLine(kev.added)}</span>
      {kev.ransomware && <span className="bad">by ransomware</span>}
    </span>
  );
}

function Id({ id, url }: Pick<OneVulnerability, "id" | "url">) {
  const link = safeLink(url);
  if (!link) return <span className="mono foreign">{inLine(id)}</span>;
  return (
    <a className="mono foreign" href={link} target="_blank" rel="noopener noreferrer">
      {inLine(id)}
    </a>
  );
}

export function FindingList({ project, version }: TabProps) {
  return (
    <>
      <Age project={project} lists={["code", "secrets"]} />
      <PagedList<OneFinding>
        label="Code and secrets"
        path={`projects/${project.id}/findings`}
        version={version}
        columns={findingColumns}
        keyOf={({ kind, fingerprint }) => `${kind} ${fingerprint}`}
        choices={[
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
        search="Search by rule, path or words"
        empty={
          <Nothing
            project={project}
            none={{ code: "Nothing was found in the code", secrets: "No secrets were found" }}
          />
        }
      />
    </>
  );
}

const findingColumns: Column<OneFinding>[] = [
  {
    head: "Finding",
    cell: ({ severity, kind, rule, message }) => (
      <span className="lines">
        <span className="tags">
          <SeverityTag severity={severity} />
          <span className="tag">{kind === "secret" ? "secret" : "code"}</span>
          <span className="mono foreign">{inLine(rule)}</span>
        </span>
        <span className="soft foreign">{inLine(message)}</span>
      </span>
    ),
  },
  {
    head: "Where",
    width: "32%",
    cell: ({ path, line }) => (
      <span className="mono foreign">
        {inLine(path)}:{line}
      </span>
    ),
  },
  {
    head: "CWE",
    width: "110px",
    cell: ({ cwe }) => (cwe.length > 0 ? cwe.map(inLine).join(", ") : <span className="soft">–</span>),
  },
  { head: "Found by", width: "120px", cell: ({ engine }) => inLine(engine) },
];

export function DependencyList({ project, version }: TabProps) {
  return (
    <>
      <Age project={project} lists={["dependencies"]} />
      <PagedList<OneDependency>
        label="Dependencies"
        path={`projects/${project.id}/dependencies`}
        version={version}
        columns={dependencyColumns}
        keyOf={({ purl }) => purl}
        choices={[
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
        search="Search by name or version"
        empty={<Nothing project={project} none={{ dependencies: "No dependencies are known" }} />}
      />
    </>
  );
}

const dependencyColumns: Column<OneDependency>[] = [
  { head: "Name", cell: ({ name }) => <span className="mono foreign">{inLine(name)}</span> },
  { head: "Version", width: "20%", cell: ({ version }) => <span className="mono foreign">{inLine(version)}</span> },
  { head: "Ecosystem", width: "120px", cell: ({ ecosystem }) => inLine(ecosystem) },
  { head: "Kind", width: "120px", cell: ({ direct }) => (direct ? "direct" : "transitive") },
  {
    head: "Licences",
    width: "22%",
    cell: ({ licenses }) =>
      licenses.length > 0 ? (
        <span className="foreign">{licenses.map(inLine).join(", ")}</span>
      ) : (
        <span className="soft">–</span>
      ),
  },
];
