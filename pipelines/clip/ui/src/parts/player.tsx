// The finished file: a video with its captions on, or a gif.
import { resolveUrl } from "@stillwake/ui/api/request.ts";
import { escapeLine } from "@stillwake/ui/format.ts";
import { useState } from "react";
import type { Clip } from "../../../src/model.ts";

export function Player({ clip: { id, title, format, files, captions } }: { clip: Clip }) {
  const [isUnplayable, setUnplayable] = useState(false);
  const file = resolveUrl(`api/clips/${id}/file`);
  if (format === "gif") return <img className="player" src={file} alt={escapeLine(title)} />;
  if (isUnplayable) {
    return (
      <p className="callout" role="status">
        This browser cannot play the clip. Download it and open it in a video player.
      </p>
    );
  }
  // Burned captions are part of the picture: a text track would show them twice.
  const hasTrack = files.captions && captions === "sidecar";
  return (
    // biome-ignore lint/a11y/useMediaCaption: without speech, or with captions in the picture, there is no text track.
    <video
      className="player"
      src={file}
      poster={files.thumbnail ? resolveUrl(`api/clips/${id}/thumbnail`) : undefined}
      controls
      playsInline
      preload="metadata"
      aria-label={escapeLine(title)}
      onError={() => setUnplayable(true)}
    >
      {hasTrack && (
        <track default kind="captions" label="Captions" srcLang="en" src={resolveUrl(`api/clips/${id}/captions.vtt`)} />
      )}
    </video>
  );
}
