// Text to copy: a command for a terminal, and a secret that is shown once.
import { type ReactNode, useEffect, useRef } from "react";
import "../css/copy.css";
import { escapeText } from "@stillwake/ui/format.ts";
import { Button } from "@stillwake/ui/parts/button.tsx";
import { useNotices } from "@stillwake/ui/parts/notices.tsx";

/** Browsers give access to the clipboard only over HTTPS and on localhost. Elsewhere the text can be selected. */
export function Copy({ text, what }: { text: string; what: string }) {
  const notices = useNotices();
  if (!navigator.clipboard) return null;
  const copy = () =>
    navigator.clipboard.writeText(text).then(
      () => notices.show(`Copied the ${what}`),
      () => notices.show(`The browser denied access to the clipboard. Select the ${what} and copy it`),
    );
  return (
    <Button onClick={copy} aria-label={`Copy the ${what}`}>
      Copy
    </Button>
  );
}

export function Command({ children }: { children: string }) {
  return (
    <div className="command">
      <code className="untrusted">{escapeText(children)}</code>
      <Copy text={children} what="command" />
    </div>
  );
}

/** Stays until it is dismissed, because it cannot be shown again. */
export function ShownOnce({
  title,
  what,
  secret,
  onDismiss,
  children,
}: {
  title: ReactNode;
  what: string;
  secret: string;
  onDismiss: () => void;
  children?: ReactNode;
}) {
  const section = useRef<HTMLElement>(null);
  useEffect(() => section.current?.focus(), []);
  return (
    <section ref={section} className="callout shown-once" data-tone="teal" tabIndex={-1} aria-label={`The ${what}`}>
      <strong className="untrusted">{title}</strong>
      <p className="small">Store it now. It is shown once and cannot be retrieved later.</p>
      <div className="command">
        <code className="untrusted">{secret}</code>
        <Copy text={secret} what={what} />
      </div>
      {children}
      <div>
        <Button onClick={onDismiss}>I have stored it</Button>
      </div>
    </section>
  );
}
