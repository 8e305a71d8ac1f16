// The first thing to do on a server that has a sample: one button, and no account.
import type { ReactNode } from "react";
import { useAct } from "../ask.ts";
import { Wrong } from "./panel.tsx";

/** `children`: what the sample is. */
export function SampleCard<Answer>({
  button,
  onStarted,
  children,
}: {
  button: string;
  onStarted: (answer: Answer) => void;
  children: ReactNode;
}) {
  const { act, busy, wrong } = useAct();
  const start = async () => {
    const started = await act<Answer>("POST", "sample");
    if (started) onStarted(started);
  };
  return (
    <section className="panel card" aria-labelledby="sample">
      <div className="lines">
        <h2 id="sample">See it work</h2>
        {children}
        {wrong && <Wrong error={wrong} />}
      </div>
      <button
        type="button"
        className="button"
        data-kind="main"
        data-size="large"
        disabled={busy}
        onClick={() => void start()}
      >
        {button}
      </button>
    </section>
  );
}
