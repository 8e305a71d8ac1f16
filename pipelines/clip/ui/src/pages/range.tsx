// The range of a clip: a player with two handles, and the times as text. Without a player the times are typed.
import { formatDuration } from "@stillwake/ui/format.ts";
import { Button } from "@stillwake/ui/parts/button.tsx";
import { Field, TextInput } from "@stillwake/ui/parts/form.tsx";
import { type CSSProperties, useRef, useState } from "react";
import { formatTimecode, parseTimecode, roundMs } from "../timecode.ts";

/** The times as they are typed. */
export interface RangeText {
  start: string;
  end: string;
}

const MIN_LENGTH = 0.1;
const STEP = 0.1;

export function RangeFields({
  src,
  range,
  onRange,
  onDuration,
  maxSeconds,
  errors,
}: {
  /** What the player shows. */
  src: string;
  range: RangeText;
  onRange: (range: RangeText) => void;
  /** Called when the player knows the length of the video. */
  onDuration: (seconds: number) => void;
  maxSeconds: number;
  errors: Partial<RangeText>;
}) {
  const video = useRef<HTMLVideoElement>(null);
  /** Where the player stops when it plays the range. */
  const stopAt = useRef(Number.POSITIVE_INFINITY);
  const [duration, setDuration] = useState<number>();
  const [isUnplayable, setUnplayable] = useState(false);
  const [at, setAt] = useState(0);
  const start = parseTimecode(range.start);
  const end = parseTimecode(range.end);
  const length = start !== undefined && end !== undefined && end > start ? roundMs(end - start) : undefined;

  const seek = (seconds: number) => {
    if (!video.current) return;
    video.current.pause();
    video.current.currentTime = seconds;
  };
  const move = (name: keyof RangeText, seconds: number) => {
    const value = roundMs(Math.min(Math.max(seconds, 0), duration ?? seconds));
    // A handle stops before the other one.
    const limited = name === "start" ? Math.min(value, (end ?? value) - MIN_LENGTH) : value;
    const allowed = name === "end" ? Math.max(limited, (start ?? 0) + MIN_LENGTH) : Math.max(0, limited);
    onRange({ ...range, [name]: formatTimecode(allowed) });
    seek(allowed);
  };
  const playRange = () => {
    if (!video.current || start === undefined || end === undefined) return;
    video.current.currentTime = start;
    stopAt.current = end;
    void video.current.play();
  };

  return (
    <div className="range-fields">
      {isUnplayable ? (
        <p className="callout" role="status">
          This browser cannot play the video. Type the start and the end of the clip. The server may still read it.
        </p>
      ) : (
        // biome-ignore lint/a11y/useMediaCaption: captions are what a clip adds to the source.
        <video
          ref={video}
          className="player"
          src={src}
          controls
          playsInline
          preload="metadata"
          aria-label="Source video"
          onLoadedMetadata={({ currentTarget }) => {
            // A live stream has no end, and a file with only sound has no length until it is read.
            if (!Number.isFinite(currentTarget.duration)) return;
            setDuration(currentTarget.duration);
            onDuration(currentTarget.duration);
          }}
          onError={() => setUnplayable(true)}
          onTimeUpdate={({ currentTarget }) => {
            setAt(currentTarget.currentTime);
            if (currentTarget.currentTime < stopAt.current) return;
            currentTarget.pause();
            stopAt.current = Number.POSITIVE_INFINITY;
          }}
        />
      )}
      {duration !== undefined && !isUnplayable && (
        <>
          <Handles start={start ?? 0} end={end ?? duration} at={at} duration={duration} onMove={move} />
          <div className="actions">
            <Button onClick={playRange} disabled={length === undefined}>
              Play the range
            </Button>
            <Button onClick={() => move("start", at)}>Start here</Button>
            <Button onClick={() => move("end", at)}>End here</Button>
          </div>
        </>
      )}
      <div className="times">
        {(["start", "end"] as const).map((name) => (
          <Field key={name} name={name} label={name === "start" ? "Start" : "End"} error={errors[name]}>
            {(props) => (
              <TextInput
                {...props}
                value={range[name]}
                placeholder="1:05.5"
                onValue={(text) => {
                  onRange({ ...range, [name]: text });
                  const seconds = parseTimecode(text);
                  if (seconds !== undefined) seek(seconds);
                }}
              />
            )}
          </Field>
        ))}
        <p className="soft small number" role="status">
          {length === undefined ? "Minutes and seconds, such as 1:05.5." : `${formatDuration(length * 1000)} long.`} At
          most {formatDuration(maxSeconds * 1000)}.
        </p>
      </div>
    </div>
  );
}

/** Two range inputs on one track: arrow keys move a handle by a tenth of a second. */
function Handles({
  start,
  end,
  at,
  duration,
  onMove,
}: {
  start: number;
  end: number;
  /** Where the player is. */
  at: number;
  duration: number;
  onMove: (name: "start" | "end", seconds: number) => void;
}) {
  const share = (seconds: number) => Math.min(1, Math.max(0, seconds / duration));
  const style = { "--from": share(start), "--to": share(end), "--at": share(at) } as CSSProperties;
  const max = Math.ceil(duration / STEP) * STEP;
  return (
    <div className="handles" style={style}>
      <span className="selected" />
      <span className="playhead" />
      {(["start", "end"] as const).map((name) => (
        <input
          key={name}
          type="range"
          aria-label={name === "start" ? "Start of the range" : "End of the range"}
          aria-valuetext={formatTimecode(name === "start" ? start : end)}
          // At the end of the track both handles are at one place: the start is on top, because only it can move.
          data-front={name === "start" && share(start) > 0.5}
          min={0}
          max={max}
          step={STEP}
          value={name === "start" ? start : end}
          onChange={(event) => onMove(name, event.target.valueAsNumber)}
        />
      ))}
    </div>
  );
}
