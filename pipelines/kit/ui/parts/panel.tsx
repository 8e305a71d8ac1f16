// A part of a page with a heading; what it shows when it has nothing to show, or could not ask.
import { type ReactNode, useId } from "react";
import type { Asked as Answered, Refused } from "../ask.ts";
import { inLine } from "./words.ts";

export function Panel({ title, acts, children }: { title: ReactNode; acts?: ReactNode; children: ReactNode }) {
  const id = useId();
  return (
    <section className="panel" aria-labelledby={id}>
      <div className="panel-head">
        <h2 id={id}>{title}</h2>
        {acts && <div className="acts">{acts}</div>}
      </div>
      {children}
    </section>
  );
}

/** What is not there yet, and what to do about it. */
export function Empty({ title, children }: { title: string; children?: ReactNode }) {
  return (
    <div className="empty">
      <strong>{title}</strong>
      {children}
    </div>
  );
}

export function Wrong({ error }: { error: Refused }) {
  return (
    <div className="callout" data-tone="bad" role="alert">
      <strong className="foreign">{inLine(error.message)}</strong>
      {error.remedy && <span className="foreign">{inLine(error.remedy)}</span>}
    </div>
  );
}

/** The answer, or in its place what is known instead of it. */
export function Shown<Answer>({ of, children }: { of: Answered<Answer>; children: (answer: Answer) => ReactNode }) {
  if (of.data === undefined && !of.error) return <p className="empty">One moment…</p>;
  return (
    <>
      {of.error && <Wrong error={of.error} />}
      {of.data !== undefined && children(of.data)}
    </>
  );
}
