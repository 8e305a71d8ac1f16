// The form that creates a token.

import { useSubmit } from "@stillwake/ui/api/query.ts";
import { Field, FormDialog, fieldError } from "@stillwake/ui/parts/form.tsx";
import { useState } from "react";
import type { api } from "../../api/resources.ts";

type Role = api.Token["role"];

const roles: Record<Role, string> = {
  reader: "Reads everything except tokens and the audit log.",
  operator: "Also enqueues, cancels, retries and pauses jobs, and changes pools, limits, breakers and schedules.",
  admin: "Everything, including tokens, endpoints with their secrets, and the audit log.",
  worker: "Only calls the watchdog and reads /metrics.",
};

export function TokenForm({
  onCreated,
  onClose,
}: {
  onCreated: (token: { name: string; token: string }) => void;
  onClose: () => void;
}) {
  const { submit, ...form } = useSubmit();
  const [role, setRole] = useState<Role>("reader");
  const hasTenant = role === "reader" || role === "operator";

  async function create(data: FormData): Promise<void> {
    const value = (name: string) => String(data.get(name) ?? "").trim();
    const [name, tenant, expiresIn] = [value("name"), value("tenant"), value("expiresIn")];
    const names = (field: string) =>
      value(field)
        .split(/[\s,]+/)
        .filter(Boolean);
    const limits = {
      ...(names("pipelines").length > 0 && { pipelines: names("pipelines") }),
      ...(names("pools").length > 0 && { pools: names("pools") }),
      ...(value("maxPriority") !== "" && { maxPriority: Number(value("maxPriority")) }),
    };
    const body = {
      ...{ name, role, ...(hasTenant && tenant && { tenant }), ...(expiresIn && { expiresIn }) },
      ...(role === "operator" && limits),
    };
    const result = await submit<{ token: string }>({ path: "/v1/tokens", body });
    if (!result) return;
    onClose();
    onCreated({ name, token: result.token });
  }

  return (
    <FormDialog
      title="Create a token"
      submitLabel="Create"
      form={form}
      fields={["name", "role", "tenant", "pipelines", "pools", "maxPriority", "expiresIn"]}
      onSubmit={create}
      onClose={onClose}
    >
      <Field name="name" label="Name" help="The person or program that uses it." error={fieldError(form.error, "name")}>
        {(props) => <input {...props} maxLength={200} autoComplete="off" />}
      </Field>
      <Field name="role" label="Role" help={roles[role]} error={fieldError(form.error, "role")}>
        {(props) => (
          <select {...props} value={role} onChange={(event) => setRole(event.target.value as Role)}>
            {Object.keys(roles).map((name) => (
              <option key={name}>{name}</option>
            ))}
          </select>
        )}
      </Field>
      <Field
        name="tenant"
        label="Tenant"
        help={
          hasTenant
            ? "Empty: all tenants. Otherwise only the jobs of this tenant."
            : "Only readers and operators can be restricted to a tenant."
        }
        error={fieldError(form.error, "tenant")}
      >
        {(props) => <input {...props} maxLength={200} autoComplete="off" disabled={!hasTenant} />}
      </Field>
      {role === "operator" && (
        <>
          <Field
            name="pipelines"
            label="May enqueue"
            help="Names of pipelines, separated by spaces. Empty: any."
            error={fieldError(form.error, "pipelines")}
          >
            {(props) => <input {...props} autoComplete="off" />}
          </Field>
          <Field
            name="pools"
            label="Pools"
            help="Other pools that it may choose. Empty: none with a tenant, any without."
            error={fieldError(form.error, "pools")}
          >
            {(props) => <input {...props} autoComplete="off" />}
          </Field>
          <Field
            name="maxPriority"
            label="Highest priority"
            help="Empty: 0 with a tenant, 1000 without. The priority of the pipeline is always allowed."
            error={fieldError(form.error, "maxPriority")}
          >
            {(props) => <input {...props} type="number" min={-1000} max={1000} />}
          </Field>
        </>
      )}
      <Field
        name="expiresIn"
        label="Expires in"
        help="For example 90d. Empty: never."
        error={fieldError(form.error, "expiresIn")}
      >
        {(props) => <input {...props} defaultValue="90d" maxLength={50} autoComplete="off" />}
      </Field>
    </FormDialog>
  );
}
