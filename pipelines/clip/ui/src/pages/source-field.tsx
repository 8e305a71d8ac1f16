// Where the video comes from: a URL, or a file that is uploaded while the range is chosen.
import { escapeLine, formatBytes, formatShare } from "@stillwake/ui/format.ts";
import { Button } from "@stillwake/ui/parts/button.tsx";
import { Field, TextInput } from "@stillwake/ui/parts/form.tsx";
import { ErrorCallout } from "@stillwake/ui/parts/panel.tsx";
import { type ReactNode, useId } from "react";
import type { UploadState } from "../upload.ts";

/** `stored`: a file that the server has already. */
export type Source =
  | { kind: "url"; url: string }
  | { kind: "file"; file: File }
  | { kind: "stored"; upload: string; name: string };

export function SourceField({
  source,
  onSource,
  upload,
  maxBytes,
  error,
}: {
  source: Source;
  onSource: (source: Source) => void;
  upload: UploadState & { retry: () => void };
  maxBytes: number;
  error: string | undefined;
}) {
  const id = useId();
  const remove = (
    <Button onClick={() => onSource({ kind: "url", url: "" })} aria-label="Remove the file">
      Remove
    </Button>
  );
  if (source.kind === "stored") return <ChosenFile name={source.name} note="Stored on the server" actions={remove} />;
  if (source.kind === "file") {
    const { file } = source;
    const isSent = upload.upload !== undefined;
    return (
      <div className="lines wide">
        <ChosenFile
          name={file.name}
          note={isSent ? `${formatBytes(file.size)}, uploaded` : formatBytes(file.size)}
          actions={remove}
        />
        {!isSent && !upload.error && (
          <div className="upload">
            <progress className="meter" aria-label="Uploaded" value={upload.fraction} />
            <span className="small number">{formatShare(upload.fraction, 1)}</span>
          </div>
        )}
        {upload.error && (
          <>
            <ErrorCallout error={upload.error} />
            {upload.error.isTemporary && <Button onClick={upload.retry}>Upload again</Button>}
          </>
        )}
      </div>
    );
  }
  return (
    <div className="source">
      <Field
        name="source"
        label="URL of a video"
        help="Of a video file, or of a page that contains a video."
        error={error}
      >
        {(props) => (
          <TextInput
            {...props}
            value={source.url}
            onValue={(url) => onSource({ kind: "url", url })}
            placeholder="https://media.example.com/talk.mp4"
          />
        )}
      </Field>
      <div className="drop">
        <input
          id={id}
          className="hidden"
          type="file"
          accept="video/*,audio/*,image/gif,.mkv,.ts"
          onChange={({ target }) => target.files?.[0] && onSource({ kind: "file", file: target.files[0] })}
        />
        <label htmlFor={id} className="button">
          Choose a file
        </label>
        <span className="soft small">or drop it here. At most {formatBytes(maxBytes)}.</span>
      </div>
    </div>
  );
}

function ChosenFile({ name, note, actions }: { name: string; note: string; actions: ReactNode }) {
  return (
    <div className="chosen">
      <span className="lines">
        <strong className="untrusted">{escapeLine(name)}</strong>
        <span className="soft small">{note}</span>
      </span>
      {actions}
    </div>
  );
}
