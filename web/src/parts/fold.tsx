// A long untrusted text, shortened, with a button that shows the rest.

import { escapeText, formatCount } from "@stillwake/ui/format.ts";
import { Button } from "@stillwake/ui/parts/button.tsx";
import { useState } from "react";

const MAX_CHARACTERS = 600;

export function Fold({ text }: { text: string }) {
  const [open, setOpen] = useState(false);
  // A button for a few more characters is not useful.
  if (text.length <= MAX_CHARACTERS * 1.2) return escapeText(text);
  return (
    <>
      {open ? escapeText(text) : `${escapeText(text.slice(0, MAX_CHARACTERS))}…`}{" "}
      <Button kind="plain" aria-expanded={open} onClick={() => setOpen(!open)}>
        {open ? "Show less" : `Show all ${formatCount(text.length)} characters`}
      </Button>
    </>
  );
}
