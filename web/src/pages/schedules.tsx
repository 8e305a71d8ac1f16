// Schedules: what comes when, what came of the last slots, and whether anybody looks.
import { useState } from "react";
import { type nouns, useSchedules } from "../api/nouns.ts";
import { useMay } from "../api/who.ts";
import { Button } from "../parts/button.tsx";
import { Command } from "../parts/copy.tsx";
import { Asked, Empty, PageHead, Panel } from "../parts/panel.tsx";
import "../look/schedules.css";
import { ScheduleForm } from "./schedules/form.tsx";
import { isLate, ScheduleTable } from "./schedules/rows.tsx";

export default function SchedulesPage() {
  const may = useMay();
  const schedules = useSchedules();
  const [edited, setEdited] = useState<nouns.Schedule | "new">();
  const add = may.manage && (
    <Button kind="main" onClick={() => setEdited("new")}>
      Add a schedule…
    </Button>
  );
  return (
    <>
      <PageHead title="Schedules" note="Which job is due when">
        {add}
      </PageHead>
      <Asked of={schedules}>
        {({ schedules: all }) => (
          <>
            {all.some(isLate) && <Late schedules={all.filter(isLate)} />}
            <Panel title={all.length === 1 ? "1 schedule" : `${all.length} schedules`} bare>
              {all.length === 0 ? (
                <Empty title="No schedule yet">
                  <p>
                    A schedule makes a job of a pipeline at its times, whoever is awake then. Add one here, or say it in
                    code at every deploy:
                  </p>
                  <pre>
                    {
                      'await sw.schedules.set(schedule("nightly", { cron: "30 2 * * *", pipeline: digest, input: {} }));'
                    }
                  </pre>
                </Empty>
              ) : (
                <ScheduleTable schedules={all} onEdit={setEdited} />
              )}
            </Panel>
          </>
        )}
      </Asked>
      {edited !== undefined && (
        <ScheduleForm schedule={edited === "new" ? undefined : edited} onClose={() => setEdited(undefined)} />
      )}
    </>
  );
}

function Late({ schedules }: { schedules: nouns.Schedule[] }) {
  return (
    <div className="callout" data-tone="amber">
      <strong>
        {schedules.length === 1 ? "A schedule is" : `${schedules.length} schedules are`} late: nobody looks at the time
      </strong>
      <span className="small">No worker of its pool is awake, and nobody calls the watchdog. Either will do:</span>
      <Command>npx stillwake watchdog</Command>
    </div>
  );
}
