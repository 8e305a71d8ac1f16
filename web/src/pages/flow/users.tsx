// Who needs a limit or a breaker: the names of pipelines, each leading to its jobs.
import { Link } from "wouter";
import { inert } from "../../parts/words.ts";

/** The pipelines whose jobs are held by it. */
export function Users({ pipelines }: { pipelines: readonly { name: string }[] }) {
  if (pipelines.length === 0) return <span className="soft">no pipeline</span>;
  return (
    <ul className="lines">
      {pipelines.map(({ name }) => (
        <li key={name}>
          <Link href={`/jobs?pipeline=${encodeURIComponent(name)}`} className="foreign">
            {inert(name)}
          </Link>
        </li>
      ))}
    </ul>
  );
}
