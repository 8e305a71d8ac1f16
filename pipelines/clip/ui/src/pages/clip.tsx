// One clip: what is done of it, its log, and when it is stored, the video with its captions.
import { useAction, useApiQuery } from "@stillwake/ui/api/query.ts";
import { resolveUrl } from "@stillwake/ui/api/request.ts";
import { escapeLine, safeLink } from "@stillwake/ui/format.ts";
import { usePageTitle } from "@stillwake/ui/page.ts";
import { Button } from "@stillwake/ui/parts/button.tsx";
import { ErrorCallout, PageHead, Panel } from "@stillwake/ui/parts/panel.tsx";
import { StateBadge } from "@stillwake/ui/parts/state-badge.tsx";
import { Link } from "wouter";
import type { Clip } from "../../../src/model.ts";
import { badgeOf, isEnded, STAGES } from "../labels.ts";
import { Facts } from "../parts/facts.tsx";
import { Player } from "../parts/player.tsx";
import { Stages } from "../parts/stages.tsx";
import { formatTimecode } from "../timecode.ts";
import { ClipLog } from "./clip-log.tsx";

export function ClipPage({ id }: { id: string }) {
  const clip = useApiQuery<Clip>(`api/clips/${encodeURIComponent(id)}`, {
    once: isEnded,
    urgent: (found) => !isEnded(found),
    // The tab's title shows the state.
    hiddenMs: 15_000,
  });
  if (clip.data) {
    return (
      <>
        {clip.error && <ErrorCallout error={clip.error} />}
        <ClipView clip={clip.data} fetchedAt={clip.dataUpdatedAt} />
      </>
    );
  }
  if (clip.error?.status === 404 || clip.error?.status === 400) {
    return (
      <>
        <PageHead title="Clip not found" />
        <p>
          The URL is wrong, or it was deleted. <Link href="/">See all clips</Link>
        </p>
      </>
    );
  }
  return clip.error ? <ErrorCallout error={clip.error} /> : <p className="soft">Loading…</p>;
}

function ClipView({ clip, fetchedAt }: { clip: Clip; fetchedAt: number }) {
  const { run, busy } = useAction();
  const { id, state, files, failure, warnings, format, captions } = clip;
  // With captions in the picture, the file is made twice: the first one has none.
  const hasFile = files.file && (captions !== "burned" || isEnded(clip));
  const title = escapeLine(clip.title);
  usePageTitle(`${title} ${state}`);
  const path = `api/clips/${id}`;
  /** Another try would fail in the same way. */
  const isFinal = failure !== null && !failure.retryable;
  return (
    <>
      <PageHead
        title={<span className="untrusted">{title}</span>}
        note={<StateBadge state={badgeOf(clip)}>{state}</StateBadge>}
      >
        {hasFile && (
          <a
            className="button"
            data-kind={state === "ready" ? "main" : undefined}
            href={resolveUrl(`${path}/file`, { download: 1 })}
          >
            Download
          </a>
        )}
        {files.captions && (
          <a className="button" href={resolveUrl(`${path}/captions.srt`)} download={`${id}.srt`}>
            Captions as SRT
          </a>
        )}
        {!isEnded(clip) && (
          <Button kind="danger" disabled={busy} onClick={() => void run({ path: `${path}/cancel` })}>
            Cancel
          </Button>
        )}
        {(state === "failed" || state === "cancelled") && (
          <Button
            kind={isFinal ? undefined : "main"}
            disabled={busy}
            onClick={() => void run({ path: `${path}/retry` })}
          >
            Retry
          </Button>
        )}
        {isEnded(clip) && (
          <Link className="button" data-kind={isFinal ? "main" : undefined} href={`/?from=${id}`}>
            Change and clip again
          </Link>
        )}
      </PageHead>
      <SourceNote clip={clip} />
      {failure && (
        <div className="callout" data-tone="bad" role="alert">
          <strong>{failure.stage ? `Failed while ${STAGES[failure.stage].during}` : "The clip failed"}</strong>
          <span className="untrusted">{escapeLine(failure.sentence)}</span>
          <span className="soft small">
            {isFinal
              ? "Another try fails in the same way unless the cause is removed."
              : "Another try may succeed. It continues after the last finished stage."}{" "}
            <code>{escapeLine(failure.code)}</code>
          </span>
        </div>
      )}
      {warnings.length > 0 && (
        <div className="callout" data-tone="amber" role="status">
          {warnings.map((warning) => (
            <span key={warning} className="untrusted">
              {escapeLine(warning)}
            </span>
          ))}
        </div>
      )}
      <div className="clip-view" data-wide={hasFile || undefined}>
        {hasFile && (
          <Panel title={format === "gif" ? "Picture" : "Video"}>
            {/* The key: captions that arrive later are shown from the beginning. */}
            <Player key={String(files.captions)} clip={clip} />
          </Panel>
        )}
        <Panel title="Details">
          <Facts clip={clip} />
        </Panel>
      </div>
      <Panel title="Progress" bare>
        <Stages clip={clip} />
        <ClipLog clip={clip} fetchedAt={fetchedAt} />
      </Panel>
    </>
  );
}

function SourceNote({ clip: { source, start, end } }: { clip: Clip }) {
  const href = source.kind === "url" ? safeLink(source.url) : undefined;
  const name = <span className="untrusted">{escapeLine(source.name)}</span>;
  return (
    <p className="soft small">
      {formatTimecode(start)} to {formatTimecode(end)} of{" "}
      {href ? (
        <a href={href} rel="noopener noreferrer">
          {name}
        </a>
      ) : (
        name
      )}
    </p>
  );
}
