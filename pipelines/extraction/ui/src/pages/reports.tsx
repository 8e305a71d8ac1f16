// The reports of the selected extraction, as downloads.
import { useApiQuery } from "@stillwake/ui/api/query.ts";
import { resolveUrl } from "@stillwake/ui/api/request.ts";
import { escapeLine, formatBytes } from "@stillwake/ui/format.ts";
import { Empty, Loaded } from "@stillwake/ui/parts/panel.tsx";
import { type Column, Table } from "@stillwake/ui/parts/table.tsx";
import type { Report } from "../types.ts";
import type { TabProps } from "./tabs.tsx";

const DESCRIPTIONS: readonly (readonly [RegExp, string])[] = [
  [/sbom.*\.json$/, "Software bill of materials (CycloneDX)"],
  [/\.sarif$/, "Findings for code hosts (SARIF)"],
  [/findings\.json$/, "Findings (JSON)"],
  [/\.html$/, "Summary to read and print"],
];

export function ReportList({ extraction, version }: TabProps) {
  if (extraction === undefined) return <Empty title="No reports yet" />;
  return <ExtractionReports extraction={extraction} version={version} />;
}

function ExtractionReports({ extraction, version }: { extraction: string; version: string }) {
  const path = `api/extractions/${encodeURIComponent(extraction)}/reports`;
  const reports = useApiQuery<{ reports: Report[] }>(path, { once: true, version });
  const columns: Column<Report>[] = [
    {
      head: "Report",
      cell: ({ name }) => (
        <span className="lines">
          <span>{DESCRIPTIONS.find(([pattern]) => pattern.test(name))?.[1] ?? escapeLine(name)}</span>
          <span className="soft mono untrusted">{escapeLine(name)}</span>
        </span>
      ),
    },
    { head: "Size", width: "110px", number: true, cell: ({ size }) => formatBytes(size) },
    {
      head: "File",
      width: "150px",
      cell: ({ name, kept }) =>
        kept ? (
          <a
            className="button"
            href={resolveUrl(`${path}/${name.split("/").map(encodeURIComponent).join("/")}`)}
            download
          >
            Download<span className="hidden"> {escapeLine(name)}</span>
          </a>
        ) : (
          <span className="soft">deleted</span>
        ),
    },
  ];
  return (
    <Loaded query={reports}>
      {({ reports: rows }) =>
        rows.length === 0 ? (
          <Empty title="No reports of this extraction">
            <p>The SBOM appears as soon as it is created, the other reports at the end.</p>
          </Empty>
        ) : (
          <Table label="Reports" columns={columns} rows={rows} keyOf={({ name }) => name} />
        )
      }
    </Loaded>
  );
}
