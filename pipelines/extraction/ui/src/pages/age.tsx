// How old a list is, and what stands in its place when it is empty: nothing found is told apart from nobody having looked, and what the last extraction found from
// what an earlier one did.
import { Empty } from "@stillwake/kit/ui/parts/panel.tsx";
import { dayTime } from "@stillwake/kit/ui/parts/words.ts";
import type { List } from "../../../src/project-state.ts";
import type { OneProject } from "../nouns.ts";

const NAMES: Record<List, string> = {
  dependencies: "Dependencies",
  vulnerabilities: "Vulnerabilities",
  code: "Code",
  secrets: "Secrets",
};

/** Above the rows; nothing where nobody has ever looked. */
export function Age({ project, lists }: { project: OneProject; lists: readonly List[] }) {
  if (!lists.some((list) => project.looked[list])) return null;
  return (
    <p className="note lines soft small">
      {lists.map((list) => (
        <span key={list} className="number">
          {ageOf(project, list)}
        </span>
      ))}
    </p>
  );
}

function ageOf({ looked, extraction }: OneProject, list: List): string {
  const by = looked[list];
  if (!by) return `${NAMES[list]}: nobody has looked yet.`;
  const at = `${NAMES[list]} as of ${dayTime(by.at)}`;
  if (by.extraction === extraction?.id) return `${at}.`;
  return extraction?.status === "completed"
    ? `${at}, by an earlier extraction: the last one could not look.`
    : `${at}, by an earlier extraction.`;
}

/** `none`: what it means that a list which somebody has looked for is empty. */
export function Nothing({
  project: { status, looked },
  none,
}: {
  project: OneProject;
  none: Partial<Record<List, string>>;
}) {
  const known = Object.entries(none).filter(([list]) => looked[list as List]);
  if (known.length > 0) return <Empty title={known.map(([, words]) => words).join(". ")} />;
  return (
    <Empty title={status === "extracting" ? "Not known yet" : "Nobody has looked"}>
      <p>
        {status === "extracting"
          ? "It appears here when the extraction is complete."
          : "Start an extraction, and it appears here."}
      </p>
    </Empty>
  );
}
