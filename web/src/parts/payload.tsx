// A JSON value, hidden until it is opened because it may contain sensitive data. Values that look like secrets stay
// masked until they are revealed.

import { Button } from "@stillwake/ui/parts/button.tsx";
import { useMemo, useState } from "react";
import { maskedJson } from "stillwake/react";

const MASK = "••••••••";

export function Payload({
  label,
  value,
  open: initiallyOpen = false,
}: {
  label: string;
  value: unknown;
  open?: boolean;
}) {
  const [open, setOpen] = useState(initiallyOpen);
  const [revealed, setRevealed] = useState(false);
  const parts = useMemo(() => (open ? maskedJson(value) : []), [open, value]);
  if (!open) {
    return (
      <Button aria-expanded={false} onClick={() => setOpen(true)}>
        Show {label}
      </Button>
    );
  }
  const text = parts.map((part) => (typeof part === "string" ? part : revealed ? part.secret : MASK)).join("");
  return (
    <div className="field">
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: a scrollable element must be reachable by keyboard. */}
      <pre className="payload" tabIndex={0}>
        {text}
      </pre>
      <div className="actions">
        <Button kind="plain" aria-expanded={true} onClick={() => setOpen(false)}>
          Hide {label}
        </Button>
        {parts.some((part) => typeof part !== "string") && (
          <Button kind="plain" aria-pressed={revealed} onClick={() => setRevealed(!revealed)}>
            {revealed ? "Mask secrets" : "Reveal secrets"}
          </Button>
        )}
        <Button kind="plain" onClick={() => void navigator.clipboard?.writeText(text)}>
          Copy
        </Button>
      </div>
    </div>
  );
}
