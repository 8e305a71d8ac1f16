// All jobs, newest first, with filters.

import { Button } from "@stillwake/ui/parts/button.tsx";
import { Empty, PageHead } from "@stillwake/ui/parts/panel.tsx";
import { Link } from "wouter";
import { usePermissions } from "../api/permissions.ts";
import "../css/jobs.css";
import { Filters, isFiltered, useFilters } from "./jobs/filters.tsx";
import { JobTable } from "./jobs/table.tsx";

export function JobsPage() {
  const { operate } = usePermissions();
  const control = useFilters();
  const { filters, clear } = control;
  return (
    <>
      <PageHead title="Jobs">
        {operate && (
          <Link
            href={filters.pipeline ? `/enqueue/${encodeURIComponent(filters.pipeline)}` : "/enqueue"}
            className="button"
          >
            Enqueue
          </Link>
        )}
      </PageHead>
      <section className="panel" aria-label="Jobs">
        <Filters control={control} />
        <JobTable
          filters={filters}
          empty={
            isFiltered(filters) ? (
              <Empty title="No job matches the filters">
                <Button onClick={clear}>Clear filters</Button>
              </Empty>
            ) : (
              <Empty title="No jobs yet">
                <p>Jobs appear here when they are enqueued by your code, in SQL or by hand.</p>
                {operate && (
                  <Link href="/enqueue" className="button" data-kind="main">
                    Enqueue a job
                  </Link>
                )}
              </Empty>
            )
          }
        />
      </section>
    </>
  );
}
