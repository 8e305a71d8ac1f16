// Buttons, and the question before what cannot be undone.
import { type ButtonHTMLAttributes, type ReactNode, useEffect, useId, useRef, useState } from "react";

type Kind = "main" | "danger" | "plain";

export function Button({ kind, ...rest }: ButtonHTMLAttributes<HTMLButtonElement> & { kind?: Kind }) {
  return <button type="button" className="button" data-kind={kind} {...rest} />;
}

/** Opens over the page; Escape closes it and the focus goes back to where it was. */
export function Dialog({ title, onClose, children }: { title: string; onClose: () => void; children: ReactNode }) {
  const box = useRef<HTMLDialogElement>(null);
  const id = useId();
  useEffect(() => {
    const before = document.activeElement as HTMLElement | null;
    box.current?.showModal();
    return () => before?.focus?.();
  }, []);
  return (
    <dialog ref={box} className="dialog" aria-labelledby={id} onClose={onClose}>
      <div className="dialog-body">
        <h2 id={id}>{title}</h2>
        {children}
      </div>
    </dialog>
  );
}

/** A button that asks first. A quiet one, for rows of a list, shows its kind only in the question. */
export function Ask({
  label,
  title,
  text,
  yes,
  kind = "danger",
  quiet,
  disabled,
  onYes,
}: {
  label: ReactNode;
  title: string;
  text: ReactNode;
  yes: string;
  kind?: Kind;
  quiet?: boolean;
  disabled?: boolean;
  onYes: () => unknown;
}) {
  const [open, setOpen] = useState(false);
  return (
    <>
      <Button kind={quiet ? undefined : kind} disabled={disabled} onClick={() => setOpen(true)}>
        {label}
      </Button>
      {open && (
        <Dialog title={title} onClose={() => setOpen(false)}>
          <div className="small">{text}</div>
          <div className="dialog-acts">
            <Button onClick={() => setOpen(false)}>Keep it as it is</Button>
            <Button
              kind={kind}
              onClick={() => {
                setOpen(false);
                void onYes();
              }}
            >
              {yes}
            </Button>
          </div>
        </Dialog>
      )}
    </>
  );
}
