// Buttons, dialogs, and the confirmation of what cannot be undone.
import { type ButtonHTMLAttributes, type ReactNode, useEffect, useId, useRef, useState } from "react";

type Kind = "main" | "danger" | "plain";

export function Button({
  kind,
  ...rest
}: ButtonHTMLAttributes<HTMLButtonElement> & { kind?: Kind; "data-size"?: "large" }) {
  return <button type="button" className="button" data-kind={kind} {...rest} />;
}

/** A modal dialog. Escape closes it, and the focus returns to where it was. */
export function Dialog({ title, onClose, children }: { title: string; onClose: () => void; children: ReactNode }) {
  const dialog = useRef<HTMLDialogElement>(null);
  const id = useId();
  useEffect(() => {
    const before = document.activeElement as HTMLElement | null;
    dialog.current?.showModal();
    return () => before?.focus?.();
  }, []);
  return (
    <dialog ref={dialog} className="dialog" aria-labelledby={id} onClose={onClose}>
      <div className="dialog-body">
        <h2 id={id}>{title}</h2>
        {children}
      </div>
    </dialog>
  );
}

/** A button that asks for confirmation. A quiet one, for rows of a list, shows its kind only in the dialog. */
export function ConfirmButton({
  label,
  title,
  text,
  confirm,
  kind = "danger",
  quiet,
  disabled,
  onConfirm,
}: {
  label: ReactNode;
  title: string;
  text?: ReactNode;
  confirm: string;
  kind?: Kind;
  quiet?: boolean;
  disabled?: boolean;
  onConfirm: () => unknown;
}) {
  const [open, setOpen] = useState(false);
  return (
    <>
      <Button kind={quiet ? undefined : kind} disabled={disabled} onClick={() => setOpen(true)}>
        {label}
      </Button>
      {open && (
        <Dialog title={title} onClose={() => setOpen(false)}>
          {text && <div className="small">{text}</div>}
          <div className="dialog-actions">
            <Button onClick={() => setOpen(false)}>Back</Button>
            <Button
              kind={kind}
              onClick={() => {
                setOpen(false);
                void onConfirm();
              }}
            >
              {confirm}
            </Button>
          </div>
        </Dialog>
      )}
    </>
  );
}
