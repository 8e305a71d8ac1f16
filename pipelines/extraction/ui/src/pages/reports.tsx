// The files of the extraction that is looked at, to be saved.
import { useAnswer } from "@stillwake/kit/ui/ask.ts";
import { Empty, Shown } from "@stillwake/kit/ui/parts/panel.tsx";
import { type Column, Table } from "@stillwake/kit/ui/parts/table.tsx";
import { inLine } from "@stillwake/kit/ui/parts/words.ts";
import { addressOf } from "@stillwake/kit/ui/place.tsx";
import type { OneReport } from "../nouns.ts";
import { size } from "../parts/words.ts";
import type { TabProps } from "./tabs.tsx";

const WORDS: readonly (readonly [RegExp, string])[] = [
  [/sbom.*\.json$/, "Software bill of materials (CycloneDX)"],
  [/\.sarif$/, "Findings for code hosts (SARIF)"],
  [/findings\.json$/, "Findings (JSON)"],
  [/\.html$/, "Summary to read and print"],
];

export function ReportList({ extraction, version }: TabProps) {
  const answer = useAnswer<{ reports: OneReport[] }>(
    extraction === undefined ? null : `extractions/${extraction}/reports`,
    { version },
  );
  if (extraction === undefined) return <Empty title="There are no reports yet" />;
  const columns: Column<OneReport>[] = [
    {
      head: "Report",
      cell: ({ name }) => (
        <span className="lines">
          <span>{WORDS.find(([pattern]) => pattern.test(name))?.[1] ?? inLine(name)}</span>
          <span className="soft mono foreign">{inLine(name)}</span>
        </span>
      ),
    },
    { head: "Size", width: "110px", number: true, cell: (report) => size(report.size) },
    {
      head: "File",
      width: "150px",
      cell: ({ name, kept }) =>
        kept ? (
          <a
            className="button"
            href={addressOf(
              `api/extractions/${extraction}/reports/${name.split("/").map(encodeURIComponent).join("/")}`,
            )}
            download
          >
            Download<span className="hidden"> {inLine(name)}</span>
          </a>
        ) : (
          <span className="soft">no longer kept</span>
        ),
    },
  ];
  return (
    <Shown of={answer}>
      {({ reports }) =>
        reports.length === 0 ? (
          <Empty title="This extraction has made no reports">
            <p>The SBOM is there as soon as it is made, the others at the end.</p>
          </Empty>
        ) : (
          <Table label="Reports" columns={columns} rows={reports} keyOf={({ name }) => name} />
        )
      }
    </Shown>
  );
}
