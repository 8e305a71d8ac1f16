// A text of strangers that may be very long: its beginning, and the rest for those who ask.
import { useState } from "react";
import { Button } from "./button.tsx";
import { count, inert } from "./words.ts";

const MOST = 600;

export function Fold({ text }: { text: string }) {
  const [open, setOpen] = useState(false);
  // A little more than that is not worth a button.
  if (text.length <= MOST * 1.2) return inert(text);
  return (
    <>
      {open ? inert(text) : `${inert(text.slice(0, MOST))}…`}{" "}
      <Button kind="plain" aria-expanded={open} onClick={() => setOpen(!open)}>
        {open ? "Show less" : `Show all ${count(text.length)} characters`}
      </Button>
    </>
  );
}
