// A schedule made or changed. The cron is said back in words while it is written.
import { useId, useState } from "react";
import { useSubmit } from "../../api/ask.ts";
import { Refused } from "../../api/call.ts";
import { type nouns, usePipelines } from "../../api/nouns.ts";
import { Field, FormDialog, wrongAt } from "../../parts/form/form.tsx";
import { inert } from "../../parts/words.ts";
import { cronWords } from "./cron-words.ts";
import { catchUps, overlaps } from "./rows.tsx";

const fields = ["name", "cron", "zone", "pipeline", "input", "overlap", "catchUp", "catch_up"];

export function ScheduleForm({ schedule, onClose }: { schedule: nouns.Schedule | undefined; onClose: () => void }) {
  const { submit, setWrong, ...form } = useSubmit();
  const pipelines = usePipelines().data?.pipelines ?? [];
  const [cron, setCron] = useState(schedule?.cron ?? "");
  const zones = useId();
  const { wrong } = form;

  async function save(data: FormData): Promise<void> {
    const said = (name: string) => String(data.get(name) ?? "").trim();
    const name = schedule?.name ?? said("name");
    if (name === "") return setWrong(missing("name", "A schedule needs a name"));
    let input: unknown;
    try {
      input = said("input") === "" ? {} : JSON.parse(said("input"));
    } catch (error) {
      return setWrong(missing("input", `This is not JSON: ${(error as Error).message}`));
    }
    const zone = said("zone") || "UTC";
    const body = { cron, zone, pipeline: said("pipeline"), input, overlap: said("overlap"), catchUp: said("catchUp") };
    const done = `Schedule ${name} is set`;
    if (await submit({ method: "PUT", path: `/v1/schedules/${encodeURIComponent(name)}`, body, done })) onClose();
  }

  const names = pipelines.map(({ name }) => name);
  const known = schedule && !names.includes(schedule.pipeline) ? [schedule.pipeline, ...names] : names;
  const words = cronWords(cron);
  return (
    <FormDialog
      title={schedule ? `Change the schedule ${inert(schedule.name)}` : "Add a schedule"}
      yes={schedule ? "Change it" : "Add it"}
      form={form}
      fields={fields}
      onSubmit={save}
      onClose={onClose}
    >
      {schedule ? (
        <p className="small soft">
          If code sets this schedule too, its next deploy overrules what you change here. Options that code gave its
          jobs (priority, pool, attempts, key, tenant, webhook) are not kept.
        </p>
      ) : (
        <Field name="name" label="Name" wrong={wrongAt(wrong, "name")}>
          {(props) => <input {...props} placeholder="nightly" maxLength={100} autoComplete="off" />}
        </Field>
      )}
      <Field name="pipeline" label="Pipeline" wrong={wrongAt(wrong, "pipeline")}>
        {(props) => (
          // The key begins it anew when the pipelines have come, so that the right one is chosen.
          <select key={known.length} {...props} defaultValue={schedule?.pipeline}>
            {known.map((name) => (
              <option key={name} value={name}>
                {inert(name)}
              </option>
            ))}
          </select>
        )}
      </Field>
      <Field
        name="cron"
        label="Cron"
        help={words ?? "Minute, hour, day of the month, month, day of the week: 30 2 * * mon-fri"}
        wrong={wrongAt(wrong, "cron")}
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
      <Field name="zone" label="Time zone" wrong={wrongAt(wrong, "zone")}>
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
      <Field name="input" label="Input, as JSON" wrong={wrongAt(wrong, "input")}>
        {(props) => (
          <textarea
            {...props}
            rows={4}
            spellCheck={false}
            defaultValue={JSON.stringify(schedule?.input ?? {}, null, 2)}
          />
        )}
      </Field>
      <Field name="overlap" label="When the job of the last slot is still live" wrong={wrongAt(wrong, "overlap")}>
        {(props) => <Options props={props} options={overlaps} chosen={schedule?.overlap} />}
      </Field>
      <Field
        name="catchUp"
        label="When slots passed while nobody could look"
        wrong={wrongAt(wrong, "catchUp", "catch_up")}
      >
        {(props) => <Options props={props} options={catchUps} chosen={schedule?.catchUp} />}
      </Field>
    </FormDialog>
  );
}

function Options({
  props,
  options,
  chosen,
}: {
  props: object;
  options: Record<string, string>;
  chosen: string | undefined;
}) {
  return (
    <select {...props} defaultValue={chosen}>
      {Object.entries(options).map(([value, words]) => (
        <option key={value} value={value}>
          {words}
        </option>
      ))}
    </select>
  );
}

/** A mistake that the server need not be asked about. */
function missing(field: string, detail: string): Refused {
  return new Refused({ code: "INVALID_INPUT", status: 400, detail, field });
}
