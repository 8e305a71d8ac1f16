// A titled section of a page, the head of a page, and what they show while data loads, is missing or failed to load.
import { type ReactNode, useId } from "react";
import type { RequestError } from "../api/request.ts";
import { escapeText } from "../format.ts";
import { useHeadingFocus } from "../page.ts";

/** `bare`: without padding, for tables and lists. */
export function Panel({
  title,
  actions,
  children,
  bare,
}: {
  title: ReactNode;
  actions?: ReactNode;
  children: ReactNode;
  bare?: boolean;
}) {
  const id = useId();
  return (
    <section className="panel" aria-labelledby={id}>
      <div className="panel-head">
        <h2 id={id}>{title}</h2>
        {actions && <div className="actions">{actions}</div>}
      </div>
      {bare ? children : <div className="panel-body">{children}</div>}
    </section>
  );
}

export function PageHead({ title, note, children }: { title: ReactNode; note?: ReactNode; children?: ReactNode }) {
  const heading = useHeadingFocus();
  return (
    <header className="page-head">
      <h1 ref={heading} tabIndex={-1}>
        {title}
      </h1>
      {note && <span className="soft small">{note}</span>}
      {children && <div className="actions">{children}</div>}
    </header>
  );
}

/** What is missing, and how to add it. */
export function Empty({ title, children }: { title: string; children?: ReactNode }) {
  return (
    <div className="empty">
      <strong>{title}</strong>
      {children}
    </div>
  );
}

export function ErrorCallout({ error }: { error: RequestError }) {
  return (
    <div className="callout" data-tone="bad" role="alert">
      <strong className="untrusted">{escapeText(error.message)}</strong>
      {error.remedy && <span className="untrusted">{escapeText(error.remedy)}</span>}
    </div>
  );
}

/** The result of a query; before it arrives a placeholder, and after a failed request the error. */
export function Loaded<Result>({
  query: { data, error, isPending },
  children,
}: {
  query: { data: Result | undefined; error: RequestError | null; isPending: boolean };
  children: (result: Result) => ReactNode;
}) {
  if (data !== undefined) {
    return (
      <>
        {error && <ErrorCallout error={error} />}
        {children(data)}
      </>
    );
  }
  if (error) return <ErrorCallout error={error} />;
  return isPending ? (
    <p className="empty" aria-busy="true">
      Loading…
    </p>
  ) : null;
}
