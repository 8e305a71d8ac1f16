// The first action on a server that has a sample: one button, no account.
import type { ReactNode } from "react";
import { useSubmit } from "../api/query.ts";
import { Button } from "./button.tsx";
import { ErrorCallout } from "./panel.tsx";

/** `children` describes the sample. */
export function SampleCard<Result>({
  button,
  onStarted,
  children,
}: {
  button: string;
  onStarted: (result: Result) => void;
  children: ReactNode;
}) {
  const { submit, busy, error } = useSubmit();
  const start = async () => {
    const started = await submit<Result>({ path: "api/sample" });
    if (started) onStarted(started);
  };
  return (
    <section className="panel sample-card" aria-labelledby="sample">
      <div className="lines">
        <h2 id="sample">Try the sample</h2>
        {children}
        {error && <ErrorCallout error={error} />}
      </div>
      <Button kind="main" data-size="large" disabled={busy} onClick={() => void start()}>
        {button}
      </Button>
    </section>
  );
}
