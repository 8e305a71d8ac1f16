// Saying something to a job that waits for it.
import { type FormEvent, useId, useState } from "react";
import { useAct } from "../../api/ask.ts";
import { ofJob } from "../../api/nouns.ts";
import { Button, Dialog } from "../../parts/button.tsx";

export function Signal({ id, awaited }: { id: string; awaited: string }) {
  const [open, setOpen] = useState(false);
  return (
    <>
      <Button kind="main" onClick={() => setOpen(true)}>
        Signal…
      </Button>
      {open && <SignalDialog id={id} awaited={awaited} onClose={() => setOpen(false)} />}
    </>
  );
}

function SignalDialog({ id, awaited, onClose }: { id: string; awaited: string; onClose: () => void }) {
  const field = useId();
  const [event, setEvent] = useState(awaited);
  const [data, setData] = useState("{}");
  const [wrong, setWrong] = useState<string>();
  const { act, busy } = useAct();

  async function send(submitted: FormEvent): Promise<void> {
    submitted.preventDefault();
    let said: unknown = null;
    try {
      said = data.trim() === "" ? null : JSON.parse(data);
    } catch (error) {
      setWrong(`This is not JSON: ${(error as Error).message}`);
      return;
    }
    setWrong(undefined);
    if (await act({ path: ofJob(id, "/signal"), body: { event, data: said }, done: "It is told" })) onClose();
  }

  return (
    <Dialog title="Say what the job waits for" onClose={onClose}>
      <form className="job-form" onSubmit={(submitted) => void send(submitted)} noValidate>
        <div className="field">
          <label htmlFor={`${field}-event`}>Event</label>
          <input
            id={`${field}-event`}
            className="input"
            value={event}
            onChange={(changed) => setEvent(changed.target.value)}
            aria-describedby={`${field}-help`}
            autoComplete="off"
          />
          <span id={`${field}-help`} className="help">
            The name that its code gives to <code>job.waitFor</code>.
          </span>
        </div>
        <div className="field">
          <label htmlFor={`${field}-data`}>Data, as JSON</label>
          <textarea
            id={`${field}-data`}
            className="input"
            rows={5}
            spellCheck={false}
            value={data}
            onChange={(changed) => setData(changed.target.value)}
            aria-invalid={wrong !== undefined}
            aria-describedby={wrong ? `${field}-wrong` : undefined}
          />
          {wrong && (
            <span id={`${field}-wrong`} className="wrong foreign" role="alert">
              {wrong}
            </span>
          )}
        </div>
        <div className="dialog-acts">
          <Button onClick={onClose}>Not now</Button>
          <Button type="submit" kind="main" disabled={busy || event === ""}>
            Say it
          </Button>
        </div>
      </form>
    </Dialog>
  );
}
