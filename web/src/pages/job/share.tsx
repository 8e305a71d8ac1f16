// Creates a link to the watch page of this job, with a read token that expires. The token is after the #, which
// browsers do not send to servers.

import { useAction } from "@stillwake/ui/api/query.ts";
import { resolveUrl } from "@stillwake/ui/api/request.ts";
import { formatDayTime } from "@stillwake/ui/format.ts";
import { Button, Dialog } from "@stillwake/ui/parts/button.tsx";
import { useId, useState } from "react";
import { Copy } from "../../parts/copy.tsx";

const durations = [
  ["1h", "1 hour", 3_600_000],
  ["8h", "8 hours", 28_800_000],
  ["24h", "1 day", 86_400_000],
] as const;

export function Share({ id }: { id: string }) {
  const [open, setOpen] = useState(false);
  return (
    <>
      <Button onClick={() => setOpen(true)}>Share…</Button>
      {open && <ShareDialog id={id} onClose={() => setOpen(false)} />}
    </>
  );
}

function ShareDialog({ id, onClose }: { id: string; onClose: () => void }) {
  const field = useId();
  const [duration, setDuration] = useState<(typeof durations)[number]>(durations[0]);
  const [created, setCreated] = useState<{ link: string; until: number }>();
  const { run, busy } = useAction();

  async function create(): Promise<void> {
    const body = { job: id, expiresIn: duration[0] };
    const result = await run<{ token: string }>({ path: "/v1/read-tokens", body });
    if (!result) return;
    const parameters = new URLSearchParams({ job: id, token: result.token });
    setCreated({ link: `${resolveUrl("watch")}#${parameters}`, until: Date.now() + duration[2] });
  }

  return (
    <Dialog title="Share this job" onClose={onClose}>
      <p className="small">
        Anyone with the link can see the status of this job, its log, steps, artifacts and outcome, but not its input,
        its worker or stacks. The link allows no actions and cannot be revoked before it expires.
      </p>
      {created ? (
        <div className="field">
          <label htmlFor={`${field}-link`}>Link</label>
          <input
            id={`${field}-link`}
            className="input mono"
            readOnly
            value={created.link}
            onFocus={(event) => event.target.select()}
          />
          <span className="help">Valid until {formatDayTime(new Date(created.until))}.</span>
        </div>
      ) : (
        <div className="field">
          <label htmlFor={`${field}-span`}>Valid for</label>
          <select
            id={`${field}-span`}
            className="input"
            value={duration[0]}
            onChange={({ target }) => setDuration(durations.find(([value]) => value === target.value) ?? durations[0])}
          >
            {durations.map(([value, label]) => (
              <option key={value} value={value}>
                {label}
              </option>
            ))}
          </select>
        </div>
      )}
      <div className="dialog-actions">
        <Button onClick={onClose}>Close</Button>
        {created ? (
          <Copy text={created.link} what="link" />
        ) : (
          <Button kind="main" disabled={busy} onClick={() => void create()}>
            Create link
          </Button>
        )}
      </div>
    </Dialog>
  );
}
