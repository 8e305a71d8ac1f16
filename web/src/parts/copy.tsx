// What somebody takes with them: a command for their terminal, and a secret that is shown this once.
import { type ReactNode, useEffect, useRef } from "react";
import "../look/copy.css";
import { Button } from "./button.tsx";
import { useNotices } from "./notices.tsx";
import { inert } from "./words.ts";

/** Browsers lend the clipboard to pages of this machine or over HTTPS alone; elsewhere the text is there to be selected. */
export function Copy({ text, what }: { text: string; what: string }) {
  const notices = useNotices();
  if (!navigator.clipboard) return null;
  const copy = () =>
    navigator.clipboard.writeText(text).then(
      () => notices.say(`Copied the ${what}`),
      () => notices.say(`The browser does not let the ${what} be copied: select it`),
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
      <code className="foreign">{inert(children)}</code>
      <Copy text={children} what="command" />
    </div>
  );
}

/** Stays until it is put away by hand: there is no second look at it. */
export function ShownOnce({
  title,
  what,
  secret,
  onAway,
  children,
}: {
  title: ReactNode;
  what: string;
  secret: string;
  onAway: () => void;
  children?: ReactNode;
}) {
  const box = useRef<HTMLElement>(null);
  useEffect(() => box.current?.focus(), []);
  return (
    <section ref={box} className="callout shown-once" data-tone="teal" tabIndex={-1} aria-label={`The ${what}`}>
      <strong className="foreign">{title}</strong>
      <p className="small">
        Keep it where secrets are kept, now: it is shown this once, and nobody can look it up later.
      </p>
      <div className="command">
        <code className="foreign">{secret}</code>
        <Copy text={secret} what={what} />
      </div>
      {children}
      <div>
        <Button onClick={onAway}>I have it</Button>
      </div>
    </section>
  );
}
