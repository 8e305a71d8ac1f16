import { useState } from "react";
import { useSubmit } from "../../api/ask.ts";
import type { nouns } from "../../api/nouns.ts";
import { Field, FormDialog, wrongAt } from "../../parts/form/form.tsx";

type Role = nouns.Token["role"];

const roles: Record<Role, string> = {
  reader: "Sees everything but tokens and the record of acts.",
  operator:
    "Sees what a reader sees; enqueues, cancels, retries and pauses; steers pools, limits, breakers and schedules.",
  admin: "May do all of it: tokens, endpoints and their secrets, the record of acts.",
  worker: "Calls the watchdog and reads /metrics, and nothing else.",
};

export function TokenForm({
  onMade,
  onClose,
}: {
  onMade: (made: { name: string; token: string }) => void;
  onClose: () => void;
}) {
  const { submit, ...form } = useSubmit();
  const [role, setRole] = useState<Role>("reader");
  const hasTenant = role === "reader" || role === "operator";

  async function make(data: FormData): Promise<void> {
    const said = (name: string) => String(data.get(name) ?? "").trim();
    const [name, tenant, expiresIn] = [said("name"), said("tenant"), said("expiresIn")];
    const body = { name, role, ...(hasTenant && tenant && { tenant }), ...(expiresIn && { expiresIn }) };
    const answer = await submit<{ token: string }>({ path: "/v1/tokens", body });
    if (!answer) return;
    onClose();
    onMade({ name, token: answer.token });
  }

  return (
    <FormDialog
      title="Make a token"
      yes="Make it"
      form={form}
      fields={["name", "role", "tenant", "expiresIn"]}
      onSubmit={make}
      onClose={onClose}
    >
      <Field name="name" label="Name" help="Of the person or program that has it." wrong={wrongAt(form.wrong, "name")}>
        {(props) => <input {...props} maxLength={200} autoComplete="off" />}
      </Field>
      <Field name="role" label="Role" help={roles[role]} wrong={wrongAt(form.wrong, "role")}>
        {(props) => (
          <select {...props} value={role} onChange={(event) => setRole(event.target.value as Role)}>
            {Object.keys(roles).map((one) => (
              <option key={one}>{one}</option>
            ))}
          </select>
        )}
      </Field>
      <Field
        name="tenant"
        label="Tenant"
        help={
          hasTenant
            ? "Empty: everything. With one, the jobs of that tenant alone and nothing of the installation."
            : "Readers and operators alone can be of a tenant."
        }
        wrong={wrongAt(form.wrong, "tenant")}
      >
        {(props) => <input {...props} maxLength={200} autoComplete="off" disabled={!hasTenant} />}
      </Field>
      <Field
        name="expiresIn"
        label="Expires in"
        help="Such as 90d. Empty: never."
        wrong={wrongAt(form.wrong, "expiresIn")}
      >
        {(props) => <input {...props} defaultValue="90d" maxLength={50} autoComplete="off" />}
      </Field>
    </FormDialog>
  );
}
