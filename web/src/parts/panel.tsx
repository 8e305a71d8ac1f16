// A part of a page with a heading; what it shows when it has nothing to show, or could not ask.
import { type ReactNode, useId } from "react";
import type { Refused } from "../api/call.ts";
import { useArrivedHere } from "../arrival.ts";
import { inert } from "./words.ts";

export function Panel({
  title,
  acts,
  children,
  bare,
}: {
  title: ReactNode;
  acts?: ReactNode;
  children: ReactNode;
  bare?: boolean;
}) {
  const id = useId();
  return (
    <section className="panel" aria-labelledby={id}>
      <div className="panel-head">
        <h2 id={id}>{title}</h2>
        {acts && <div className="acts">{acts}</div>}
      </div>
      {bare ? children : <div className="panel-body">{children}</div>}
    </section>
  );
}

export function PageHead({ title, note, children }: { title: ReactNode; note?: ReactNode; children?: ReactNode }) {
  const heading = useArrivedHere();
  return (
    <header className="page-head">
      <h1 ref={heading} tabIndex={-1}>
        {title}
      </h1>
      {note && <span className="soft small">{note}</span>}
      {children && <div className="acts">{children}</div>}
    </header>
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
      <strong className="foreign">{inert(error.message)}</strong>
      {error.remedy && <span className="foreign">{inert(error.remedy)}</span>}
    </div>
  );
}

/** The answer, or in its place what is known instead of it. Nothing moves when it comes: the place is kept. */
export function Asked<Answer>({
  of: { data, error, isPending },
  children,
}: {
  of: { data: Answer | undefined; error: Refused | null; isPending: boolean };
  children: (answer: Answer) => ReactNode;
}) {
  if (data !== undefined) {
    return (
      <>
        {error && <Wrong error={error} />}
        {children(data)}
      </>
    );
  }
  if (error) return <Wrong error={error} />;
  return isPending ? (
    <p className="empty" aria-busy="true">
      One moment…
    </p>
  ) : null;
}
