// The form that creates or changes a schedule. It describes the cron expression while it is typed.

import { useSubmit } from "@stillwake/ui/api/query.ts";
import { RequestError } from "@stillwake/ui/api/request.ts";
import { escapeText } from "@stillwake/ui/format.ts";
import { Field, FormDialog, fieldError } from "@stillwake/ui/parts/form.tsx";
import { useId, useState } from "react";
import { type api, usePipelines } from "../../api/resources.ts";
import { describeCron } from "./describe-cron.ts";
import { catchUpLabels, overlapLabels } from "./rows.tsx";

const fields = ["name", "cron", "zone", "pipeline", "input", "overlap", "catchUp", "catch_up"];

export function ScheduleForm({ schedule, onClose }: { schedule: api.Schedule | undefined; onClose: () => void }) {
  const { submit, setError, ...form } = useSubmit();
  const pipelines = usePipelines().data?.pipelines ?? [];
  const [cron, setCron] = useState(schedule?.cron ?? "");
  const zones = useId();
  const { error } = form;

  async function save(data: FormData): Promise<void> {
    const value = (name: string) => String(data.get(name) ?? "").trim();
    const name = schedule?.name ?? value("name");
    if (name === "") return setError(invalidField("name", "A schedule needs a name"));
    let input: unknown;
    try {
      input = value("input") === "" ? {} : JSON.parse(value("input"));
    } catch (failure) {
      return setError(invalidField("input", `Invalid JSON: ${(failure as Error).message}`));
    }
    const body = {
      cron,
      zone: value("zone") || "UTC",
      pipeline: value("pipeline"),
      input,
      overlap: value("overlap"),
      catchUp: value("catchUp"),
    };
    const done = `Schedule ${name} is saved`;
    if (await submit({ method: "PUT", path: `/v1/schedules/${encodeURIComponent(name)}`, body, done })) onClose();
  }

  const registered = pipelines.map(({ name }) => name);
  const names = schedule && !registered.includes(schedule.pipeline) ? [schedule.pipeline, ...registered] : registered;
  return (
    <FormDialog
      title={schedule ? `Change schedule ${escapeText(schedule.name)}` : "Add a schedule"}
      submitLabel={schedule ? "Save" : "Add"}
      form={form}
      fields={fields}
      onSubmit={save}
      onClose={onClose}
    >
      {schedule ? (
        <p className="small soft">
          If your code sets this schedule, the next deploy overwrites this change. Job options that your code set
          (priority, pool, attempts, key, tenant, webhook) are removed.
        </p>
      ) : (
        <Field name="name" label="Name" error={fieldError(error, "name")}>
          {(props) => <input {...props} placeholder="nightly" maxLength={100} autoComplete="off" />}
        </Field>
      )}
      <Field name="pipeline" label="Pipeline" error={fieldError(error, "pipeline")}>
        {(props) => (
          // The key: the default value applies only when the pipelines have loaded.
          <select key={names.length} {...props} defaultValue={schedule?.pipeline}>
            {names.map((name) => (
              <option key={name} value={name}>
                {escapeText(name)}
              </option>
            ))}
          </select>
        )}
      </Field>
      <Field
        name="cron"
        label="Cron"
        help={describeCron(cron) ?? "Minute, hour, day of month, month, day of week: 30 2 * * mon-fri"}
        error={fieldError(error, "cron")}
      >
        {(props) => (
          <input
            {...props}
            value={cron}
            onChange={(event) => setCron(event.target.value)}
            placeholder="30 2 * * *"
            maxLength={200}
            autoComplete="off"
          />
        )}
      </Field>
      <Field name="zone" label="Time zone" error={fieldError(error, "zone")}>
        {(props) => (
          <>
            <input {...props} list={zones} defaultValue={schedule?.zone ?? "UTC"} maxLength={100} autoComplete="off" />
            <datalist id={zones}>
              {["UTC", ...Intl.supportedValuesOf("timeZone")].map((zone) => (
                <option key={zone} value={zone} />
              ))}
            </datalist>
          </>
        )}
      </Field>
      <Field name="input" label="Input (JSON)" error={fieldError(error, "input")}>
        {(props) => (
          <textarea
            {...props}
            rows={4}
            spellCheck={false}
            defaultValue={JSON.stringify(schedule?.input ?? {}, null, 2)}
          />
        )}
      </Field>
      <Field name="overlap" label="If the last job has not ended" error={fieldError(error, "overlap")}>
        {(props) => <Options props={props} options={overlapLabels} value={schedule?.overlap} />}
      </Field>
      <Field name="catchUp" label="Missed occurrences" error={fieldError(error, "catchUp", "catch_up")}>
        {(props) => <Options props={props} options={catchUpLabels} value={schedule?.catchUp} />}
      </Field>
    </FormDialog>
  );
}

function Options({
  props,
  options,
  value,
}: {
  props: object;
  options: Record<string, string>;
  value: string | undefined;
}) {
  return (
    <select {...props} defaultValue={value}>
      {Object.entries(options).map(([option, label]) => (
        <option key={option} value={option}>
          {label}
        </option>
      ))}
    </select>
  );
}

function invalidField(field: string, detail: string): RequestError {
  return new RequestError({ code: "INVALID_INPUT", status: 400, detail, field });
}
