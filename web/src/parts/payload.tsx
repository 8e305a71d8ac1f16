// A JSON value. It is shown when somebody asks for it, because it may hold what a passer-by should not read; and what looks like a secret
// stays covered until it is asked for by itself.

import { useMemo, useState } from "react";
import { maskedJson } from "stillwake/react";
import { Button } from "./button.tsx";

const COVER = "••••••••";

export function Payload({ label, value, open: begun = false }: { label: string; value: unknown; open?: boolean }) {
  const [open, setOpen] = useState(begun);
  const [uncovered, setUncovered] = useState(false);
  const parts = useMemo(() => (open ? maskedJson(value) : []), [open, value]);
  if (!open) {
    return (
      <Button aria-expanded={false} onClick={() => setOpen(true)}>
        Show {label}
      </Button>
    );
  }
  const text = parts.map((part) => (typeof part === "string" ? part : uncovered ? part.secret : COVER)).join("");
  return (
    <div className="field">
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reachable by keyboard. */}
      <pre className="payload" tabIndex={0}>
        {text}
      </pre>
      <div className="acts">
        <Button kind="plain" aria-expanded={true} onClick={() => setOpen(false)}>
          Hide {label}
        </Button>
        {parts.some((part) => typeof part !== "string") && (
          <Button kind="plain" aria-pressed={uncovered} onClick={() => setUncovered(!uncovered)}>
            {uncovered ? "Cover secrets" : "Uncover secrets"}
          </Button>
        )}
        <Button kind="plain" onClick={() => void navigator.clipboard?.writeText(text)}>
          Copy
        </Button>
      </div>
    </div>
  );
}
