// When a list was last scanned, and what is shown if it is empty: "nothing found" differs from "not scanned", and
// results of the last extraction differ from those of an earlier one.
import { escapeLine, formatDayTime } from "@stillwake/ui/format.ts";
import { Empty } from "@stillwake/ui/parts/panel.tsx";
import type { ListName } from "../../../src/project-state.ts";
import type { Project } from "../types.ts";

const NAMES: Record<ListName, string> = {
  dependencies: "Dependencies",
  vulnerabilities: "Vulnerabilities",
  code: "Code",
  secrets: "Secrets",
};

/** Above the rows; not shown if none of the lists was ever scanned. */
export function ListAge({ project, lists }: { project: Project; lists: readonly ListName[] }) {
  if (!lists.some((list) => project.looked[list])) return null;
  return (
    <p className="note lines soft small">
      {lists.map((list) => (
        <span key={list} className="number">
          {describeAge(project, list)}
        </span>
      ))}
    </p>
  );
}

function describeAge({ looked, extraction }: Project, list: ListName): string {
  const scan = looked[list];
  if (!scan) return `${NAMES[list]}: not scanned yet.`;
  const age = `${NAMES[list]} as of ${formatDayTime(scan.at)}`;
  if (scan.extraction === extraction?.id) return `${age}.`;
  return extraction?.status === "completed"
    ? `${age}, from an earlier extraction: the last one skipped this scan.`
    : `${age}, from an earlier extraction.`;
}

/** Shown if not all dependencies were checked for vulnerabilities: an empty list is then no good news. */
export function CoverageCallout({ project }: { project: Project }) {
  const last = project.extraction?.summary?.coverage;
  const shown = project.looked.vulnerabilities?.coverage;
  if (project.extraction?.status === "completed" && last && last.checked === 0 && last.total > 0)
    return <Unchecked title="The last extraction did not check for vulnerabilities" notes={last.notes} />;
  if (!shown || shown.checked >= shown.total) return null;
  return (
    <Unchecked
      title={`Only ${shown.checked} of ${shown.total} dependencies were checked for vulnerabilities`}
      notes={shown.notes}
    />
  );
}

function Unchecked({ title, notes }: { title: string; notes: readonly string[] }) {
  return (
    <div className="callout" data-tone="amber">
      <strong>{title}</strong>
      <span className="untrusted">{notes.map(escapeLine).join("; ")}</span>
    </div>
  );
}

/** `texts`: the text for each scanned list that is empty. */
export function EmptyList({
  project: { status, looked },
  texts,
}: {
  project: Project;
  texts: Partial<Record<ListName, string>>;
}) {
  const scanned = Object.entries(texts).filter(([list]) => looked[list as ListName]);
  if (scanned.length > 0) return <Empty title={scanned.map(([, text]) => text).join(". ")} />;
  if (status === "extracting")
    return (
      <Empty title="Not scanned yet">
        <p>Results appear when the extraction completes.</p>
      </Empty>
    );
  if (status === "ready")
    return (
      <Empty title={"vulnerabilities" in texts ? "Not checked" : "Not scanned"}>
        <p>The last extraction skipped this scan. Its log says why.</p>
      </Empty>
    );
  return (
    <Empty title="Not scanned">
      <p>Start an extraction to scan this repository.</p>
    </Empty>
  );
}
