// A clip in the grid: its picture, its title, its state, and what it waits for or failed with.
import { resolveUrl } from "@stillwake/ui/api/request.ts";
import { escapeLine } from "@stillwake/ui/format.ts";
import { StateBadge, StateIcon } from "@stillwake/ui/parts/state-badge.tsx";
import { RelativeTime } from "@stillwake/ui/parts/time.tsx";
import { Link } from "wouter";
import type { Clip } from "../../../src/model.ts";
import { badgeOf, FORMATS, STAGES } from "../labels.ts";
import { formatLength } from "../timecode.ts";

export function ClipCard({ clip }: { clip: Clip }) {
  const { id, state, stage, progress, failure, files, format, start, end, captions } = clip;
  return (
    <li className="clip-card">
      <div className="picture">
        {files.thumbnail ? (
          <img src={resolveUrl(`api/clips/${id}/thumbnail`)} alt="" loading="lazy" />
        ) : (
          <span className="state" data-state={badgeOf(clip)}>
            <StateIcon state={badgeOf(clip)} />
          </span>
        )}
        <span className="tag length number">{formatLength(end - start)}</span>
      </div>
      <div className="lines">
        <Link href={`/clips/${id}`} className="untrusted title">
          {escapeLine(clip.title)}
        </Link>
        <StateBadge state={badgeOf(clip)}>{state === "running" && stage ? STAGES[stage].during : state}</StateBadge>
        {state === "running" && (
          <progress
            className="meter"
            aria-label={`Progress of ${escapeLine(clip.title)}`}
            value={progress?.fraction ?? undefined}
          />
        )}
        {failure && <span className="bad small clamp untrusted">{escapeLine(failure.sentence)}</span>}
        <span className="soft small">
          {FORMATS[format]}
          {captions !== "none" && ", captions"} · <RelativeTime at={clip.createdAt} />
        </span>
      </div>
    </li>
  );
}
