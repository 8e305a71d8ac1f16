// The form of a new clip: source, range, captions, format and title.
import { useSubmit } from "@stillwake/ui/api/query.ts";
import { resolveUrl } from "@stillwake/ui/api/request.ts";
import { Button } from "@stillwake/ui/parts/button.tsx";
import { Field, fieldError, TextInput } from "@stillwake/ui/parts/form.tsx";
import { useNotices } from "@stillwake/ui/parts/notices.tsx";
import { ErrorCallout, Panel } from "@stillwake/ui/parts/panel.tsx";
import { Toggles } from "@stillwake/ui/parts/toggles.tsx";
import { type DragEvent, type FormEvent, useEffect, useState } from "react";
import { useLocation } from "wouter";
import type { Captions, Cut, Format, Me, NewClipBody, RequestedClip } from "../../../src/model.ts";
import { CAPTIONS, FORMATS } from "../labels.ts";
import { formatTimecode, parseTimecode } from "../timecode.ts";
import { useUpload } from "../upload.ts";
import { RangeFields, type RangeText } from "./range.tsx";
import { type Source, SourceField } from "./source-field.tsx";

/** What the form begins with. */
export interface ClipDraft {
  source: Source;
  /** Seconds; unset: the first ten. */
  start?: number;
  end?: number;
  captions?: Captions;
  format?: Format;
  cut?: Cut;
  title?: string;
}

const DEFAULT_SECONDS = 10;
const FIELDS = ["source", "start", "end", "title"];

export function NewClip({ limits, draft }: { limits: Me["limits"]; draft: ClipDraft }) {
  const [source, setSource] = useState(draft.source);
  const [range, setRange] = useState<RangeText>(() => rangeOf(draft));
  const [isRangeChosen, setRangeChosen] = useState(draft.end !== undefined);
  const [captions, setCaptions] = useState<Captions>(draft.captions ?? "none");
  const [format, setFormat] = useState<Format>(draft.format ?? "mp4");
  const [cut, setCut] = useState<Cut>(draft.cut ?? "exact");
  const [title, setTitle] = useState(draft.title ?? "");
  const [invalid, setInvalid] = useState<Partial<RangeText>>({});
  const [isOver, setOver] = useState(false);
  const { submit, busy, error, setError } = useSubmit();
  const upload = useUpload(source.kind === "file" ? source.file : null, limits.uploadBytes);
  const src = usePreview(source);
  /** The server will not accept this file. */
  const isRefused = upload.error !== undefined && !upload.error.isTemporary;
  const notices = useNotices();
  const [, navigate] = useLocation();

  const choose = (next: Source) => {
    setSource(next);
    setError(undefined);
    if (next.kind !== "url") setRangeChosen(false);
  };
  const changeRange = (next: RangeText) => {
    setRange(next);
    setRangeChosen(true);
    setInvalid({});
  };
  const chooseFormat = (next: Format) => {
    setFormat(next);
    // A gif has no text track.
    if (next === "gif" && captions === "sidecar") setCaptions("burned");
  };
  const send = async (event: FormEvent) => {
    event.preventDefault();
    const problems = rangeProblems(range);
    setInvalid(problems);
    const body = bodySource(source, upload.upload?.id);
    if (!body || problems.start || problems.end) return;
    const clip = await submit<RequestedClip>({
      path: "api/clips",
      body: {
        source: body,
        start: parseTimecode(range.start)!,
        end: parseTimecode(range.end)!,
        captions,
        format,
        cut,
        ...(title.trim() !== "" && { title: title.trim() }),
      } satisfies NewClipBody,
    });
    if (!clip) return;
    if (clip.existing) notices.show("This clip exists already.");
    navigate(`/clips/${clip.id}`);
  };
  const drop = (event: DragEvent) => {
    event.preventDefault();
    setOver(false);
    const [file] = event.dataTransfer.files;
    if (file) choose({ kind: "file", file });
  };
  const over = (event: DragEvent) => {
    if (!event.dataTransfer.types.includes("Files")) return;
    event.preventDefault();
    setOver(true);
  };

  return (
    <Panel title="New clip">
      <form
        className="form new-clip"
        data-over={isOver || undefined}
        onSubmit={(event) => void send(event)}
        onDragOver={over}
        onDragLeave={() => setOver(false)}
        onDrop={drop}
        noValidate
      >
        {error && fieldError(error, ...FIELDS) === undefined && <ErrorCallout error={error} />}
        <SourceField
          source={source}
          onSource={choose}
          upload={upload}
          maxBytes={limits.uploadBytes}
          error={fieldError(error, "source")}
        />
        {src !== undefined && !isRefused && (
          <>
            <RangeFields
              // Another video has another length.
              key={src}
              src={src}
              range={range}
              onRange={changeRange}
              onDuration={(seconds) => {
                if (!isRangeChosen) setRange(rangeOf({ end: Math.min(DEFAULT_SECONDS, seconds) }));
              }}
              maxSeconds={limits.clipSeconds}
              errors={{
                start: invalid.start ?? fieldError(error, "start"),
                end: invalid.end ?? fieldError(error, "end"),
              }}
            />
            <div className="clip-options">
              <Option label="Format">
                <Toggles label="Format" options={options(FORMATS)} value={format} onChange={chooseFormat} />
              </Option>
              <Option label="Captions">
                <Toggles
                  label="Captions"
                  options={options(CAPTIONS).filter(({ value }) => format !== "gif" || value !== "sidecar")}
                  value={captions}
                  onChange={setCaptions}
                />
              </Option>
              <label className="checkbox">
                <input
                  type="checkbox"
                  checked={cut === "keyframe"}
                  onChange={({ target }) => setCut(target.checked ? "keyframe" : "exact")}
                />
                Cut without encoding. The clip may begin earlier, at a key frame.
              </label>
              <Field
                name="title"
                label="Title"
                help="Default: the name of the video."
                error={fieldError(error, "title")}
              >
                {(props) => <TextInput {...props} value={title} onValue={setTitle} />}
              </Field>
              <Button
                type="submit"
                kind="main"
                data-size="large"
                disabled={busy || (source.kind === "file" && !upload.upload)}
              >
                {source.kind === "file" && !upload.upload && !upload.error ? "Uploading…" : "Make the clip"}
              </Button>
            </div>
          </>
        )}
      </form>
    </Panel>
  );
}

function Option({ label, children }: { label: string; children: React.ReactNode }) {
  return (
    <div className="field">
      <span className="label" aria-hidden="true">
        {label}
      </span>
      {children}
    </div>
  );
}

const options = <Value extends string>(labels: Record<Value, string>) =>
  (Object.entries(labels) as [Value, string][]).map(([value, label]) => ({ value, label }));

const rangeOf = ({ start = 0, end = DEFAULT_SECONDS }: Pick<ClipDraft, "start" | "end">): RangeText => ({
  start: formatTimecode(start),
  end: formatTimecode(end),
});

function rangeProblems(range: RangeText): Partial<RangeText> {
  const start = parseTimecode(range.start);
  const end = parseTimecode(range.end);
  const problem = "Write minutes and seconds, such as 1:05.5";
  return {
    ...(start === undefined && { start: problem }),
    ...(end === undefined && { end: problem }),
    ...(start !== undefined && end !== undefined && end <= start && { end: "This must be after the start" }),
  };
}

/** Undefined while the file is not uploaded. */
function bodySource(source: Source, uploaded: string | undefined): NewClipBody["source"] | undefined {
  if (source.kind === "url") return { url: source.url.trim() };
  const upload = source.kind === "stored" ? source.upload : uploaded;
  return upload === undefined ? undefined : { upload };
}

/** What the player shows: a URL when its typing pauses, a local file without its upload. */
function usePreview(source: Source): string | undefined {
  const [src, setSrc] = useState<string>();
  useEffect(() => {
    if (source.kind === "file") {
      const local = URL.createObjectURL(source.file);
      setSrc(local);
      return () => URL.revokeObjectURL(local);
    }
    if (source.kind === "stored") {
      setSrc(resolveUrl(`api/uploads/${source.upload}/file`));
      return;
    }
    const url = source.url.trim();
    if (!/^https?:\/\/./i.test(url) || !URL.canParse(url)) {
      setSrc(undefined);
      return;
    }
    const timer = setTimeout(() => setSrc(url), 300);
    return () => clearTimeout(timer);
  }, [source]);
  return src;
}
