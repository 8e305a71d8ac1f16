// Sends an event to a job that waits for one.

import { useAction } from "@stillwake/ui/api/query.ts";
import { Button, Dialog } from "@stillwake/ui/parts/button.tsx";
import { type FormEvent, useId, useState } from "react";
import { jobPath } from "../../api/resources.ts";

export function Signal({ id, event }: { id: string; event: string }) {
  const [open, setOpen] = useState(false);
  return (
    <>
      <Button kind="main" onClick={() => setOpen(true)}>
        Signal…
      </Button>
      {open && <SignalDialog id={id} awaitedEvent={event} onClose={() => setOpen(false)} />}
    </>
  );
}

function SignalDialog({ id, awaitedEvent, onClose }: { id: string; awaitedEvent: string; onClose: () => void }) {
  const field = useId();
  const [event, setEvent] = useState(awaitedEvent);
  const [data, setData] = useState("{}");
  const [error, setError] = useState<string>();
  const { run, busy } = useAction();

  async function send(submitted: FormEvent): Promise<void> {
    submitted.preventDefault();
    let value: unknown = null;
    try {
      value = data.trim() === "" ? null : JSON.parse(data);
    } catch (failure) {
      setError(`Invalid JSON: ${(failure as Error).message}`);
      return;
    }
    setError(undefined);
    if (await run({ path: jobPath(id, "/signal"), body: { event, data: value }, done: "The event is sent" })) onClose();
  }

  return (
    <Dialog title="Send an event" onClose={onClose}>
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
            The name passed to <code>job.waitFor</code>.
          </span>
        </div>
        <div className="field">
          <label htmlFor={`${field}-data`}>Data (JSON)</label>
          <textarea
            id={`${field}-data`}
            className="input"
            rows={5}
            spellCheck={false}
            value={data}
            onChange={(changed) => setData(changed.target.value)}
            aria-invalid={error !== undefined}
            aria-describedby={error ? `${field}-error` : undefined}
          />
          {error && (
            <span id={`${field}-error`} className="error untrusted" role="alert">
              {error}
            </span>
          )}
        </div>
        <div className="dialog-actions">
          <Button onClick={onClose}>Cancel</Button>
          <Button type="submit" kind="main" disabled={busy || event === ""}>
            Send
          </Button>
        </div>
      </form>
    </Dialog>
  );
}
