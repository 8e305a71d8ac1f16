// The pipelines that use a limit or a breaker, with links to their jobs.

import { escapeText } from "@stillwake/ui/format.ts";
import { Link } from "wouter";

export function PipelineLinks({ pipelines }: { pipelines: readonly { name: string }[] }) {
  if (pipelines.length === 0) return <span className="soft">no pipeline</span>;
  return (
    <ul className="lines">
      {pipelines.map(({ name }) => (
        <li key={name}>
          <Link href={`/jobs?pipeline=${encodeURIComponent(name)}`} className="untrusted">
            {escapeText(name)}
          </Link>
        </li>
      ))}
    </ul>
  );
}
