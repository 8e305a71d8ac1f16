// A form for an action with an optional reason, such as pausing a pool.
import { useSubmit } from "@stillwake/ui/api/query.ts";
import { Field, FormDialog, fieldError } from "@stillwake/ui/parts/form.tsx";

export function ReasonForm({
  title,
  submitLabel,
  text,
  help,
  action,
  onClose,
}: {
  title: string;
  submitLabel: string;
  text: string;
  help?: string;
  action: { path: string; done: string };
  onClose: () => void;
}) {
  const { submit, ...form } = useSubmit();
  async function send(data: FormData): Promise<void> {
    const reason = String(data.get("reason")).trim();
    if (await submit({ ...action, body: reason ? { reason } : {} })) onClose();
  }
  return (
    <FormDialog
      title={title}
      submitLabel={submitLabel}
      form={form}
      fields={["reason"]}
      onSubmit={send}
      onClose={onClose}
    >
      <p className="small">{text}</p>
      <Field name="reason" label="Reason" help={help} error={fieldError(form.error, "reason")}>
        {(props) => <input {...props} maxLength={2000} />}
      </Field>
    </FormDialog>
  );
}
