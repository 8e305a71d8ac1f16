// A link for the person who waits: it opens this one job, for reading and for a while. The token stands behind the #, which no server is sent.
import { useId, useState } from "react";
import { useAct } from "../../api/ask.ts";
import { addressOf } from "../../api/call.ts";
import { Button, Dialog } from "../../parts/button.tsx";
import { Copy } from "../../parts/copy.tsx";
import { dayTime } from "../../parts/words.ts";

const spans = [
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
  const [chosen, setChosen] = useState<(typeof spans)[number]>(spans[0]);
  const [made, setMade] = useState<{ link: string; until: number }>();
  const { act, busy } = useAct();

  async function make(): Promise<void> {
    const body = { job: id, expiresIn: chosen[0] };
    const answer = await act<{ token: string }>({ path: "/v1/read-tokens", body });
    if (!answer) return;
    const behind = new URLSearchParams({ job: id, token: answer.token });
    setMade({ link: `${addressOf("watch")}#${behind}`, until: Date.now() + chosen[2] });
  }

  return (
    <Dialog title="Share this job" onClose={onClose}>
      <p className="small">
        Whoever has the link sees how the job fares, its lines, steps and artifacts, and what came of it. Not its input,
        its worker, or stacks. Nothing can be done with it, and it cannot be taken back before it has run out.
      </p>
      {made ? (
        <div className="field">
          <label htmlFor={`${field}-link`}>Link</label>
          <input
            id={`${field}-link`}
            className="input mono"
            readOnly
            value={made.link}
            onFocus={(event) => event.target.select()}
          />
          <span className="help">It holds until {dayTime(new Date(made.until))}.</span>
        </div>
      ) : (
        <div className="field">
          <label htmlFor={`${field}-span`}>It holds for</label>
          <select
            id={`${field}-span`}
            className="input"
            value={chosen[0]}
            onChange={(event) => setChosen(spans.find(([value]) => value === event.target.value) ?? spans[0])}
          >
            {spans.map(([value, words]) => (
              <option key={value} value={value}>
                {words}
              </option>
            ))}
          </select>
        </div>
      )}
      <div className="dialog-acts">
        <Button onClick={onClose}>Close</Button>
        {made ? (
          <Copy text={made.link} what="link" />
        ) : (
          <Button kind="main" disabled={busy} onClick={() => void make()}>
            Make a link
          </Button>
        )}
      </div>
    </Dialog>
  );
}
