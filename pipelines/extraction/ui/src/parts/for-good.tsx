// A button for what cannot be undone: it is pressed twice, and what goes is said in between.
import { useState } from "react";

interface ForGoodProps {
  label: string;
  /** What the second button is called. */
  sure: string;
  says?: string;
  busy: boolean;
  onSure: () => void;
}

export function ForGood({ label, sure, says, busy, onSure }: ForGoodProps) {
  const [asked, setAsked] = useState(false);
  if (!asked) {
    return (
      <button type="button" className="button" data-kind="danger" onClick={() => setAsked(true)}>
        {label}
      </button>
    );
  }
  return (
    <>
      {says && <span>{says}</span>}
      <button type="button" className="button" data-kind="danger" disabled={busy} onClick={onSure}>
        {sure}
      </button>
      <button type="button" className="button" onClick={() => setAsked(false)}>
        Keep it
      </button>
    </>
  );
}
