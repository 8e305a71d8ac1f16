// Schedules: the next and the last occurrences of each, and whether one is late.

import { Button } from "@stillwake/ui/parts/button.tsx";
import { Empty, Loaded, PageHead, Panel } from "@stillwake/ui/parts/panel.tsx";
import { useState } from "react";
import { usePermissions } from "../api/permissions.ts";
import { type api, useSchedules } from "../api/resources.ts";
import { Command } from "../parts/copy.tsx";
import "../css/schedules.css";
import { ScheduleForm } from "./schedules/form.tsx";
import { isLate, ScheduleTable } from "./schedules/rows.tsx";

export default function SchedulesPage() {
  const { manage } = usePermissions();
  const schedules = useSchedules();
  const [edited, setEdited] = useState<api.Schedule | "new">();
  const add = manage && (
    <Button kind="main" onClick={() => setEdited("new")}>
      Add a schedule…
    </Button>
  );
  return (
    <>
      <PageHead title="Schedules" note="Jobs at fixed times">
        {add}
      </PageHead>
      <Loaded query={schedules}>
        {({ schedules: all }) => (
          <>
            {all.some(isLate) && <Late schedules={all.filter(isLate)} />}
            <Panel title={all.length === 1 ? "1 schedule" : `${all.length} schedules`} bare>
              {all.length === 0 ? (
                <Empty title="No schedules yet">
                  <p>
                    A schedule enqueues a job of a pipeline at fixed times. Add one here, or set it in code at every
                    deploy:
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
      </Loaded>
      {edited !== undefined && (
        <ScheduleForm schedule={edited === "new" ? undefined : edited} onClose={() => setEdited(undefined)} />
      )}
    </>
  );
}

function Late({ schedules }: { schedules: api.Schedule[] }) {
  return (
    <div className="callout" data-tone="amber">
      <strong>{schedules.length === 1 ? "1 schedule is late" : `${schedules.length} schedules are late`}</strong>
      <span className="small">
        No worker is running and the watchdog is not called. Start a worker, or run the watchdog:
      </span>
      <Command>npx stillwake watchdog</Command>
    </div>
  );
}
