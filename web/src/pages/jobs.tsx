// All jobs, newest first, however many there are: only the rows in view are drawn, and older ones are read when they come near.
import { Link } from "wouter";
import { useMay } from "../api/who.ts";
import { Button } from "../parts/button.tsx";
import { Empty, PageHead, Wrong } from "../parts/panel.tsx";
import "../look/jobs.css";
import { Filters, isFiltered, useChosen } from "./jobs/filters.tsx";
import { JobTable } from "./jobs/table.tsx";

export function JobsPage() {
  const { operate } = useMay();
  const choosing = useChosen();
  const { chosen, clear } = choosing;
  return (
    <>
      <PageHead title="Jobs">
        {operate && (
          <Link
            href={chosen.pipeline ? `/enqueue/${encodeURIComponent(chosen.pipeline)}` : "/enqueue"}
            className="button"
          >
            Enqueue
          </Link>
        )}
      </PageHead>
      <section className="panel" aria-label="Jobs">
        <Filters choosing={choosing} />
        <JobTable
          chosen={chosen}
          empty={
            isFiltered(chosen) ? (
              <Empty title="No job matches">
                <Button onClick={clear}>Clear filters</Button>
              </Empty>
            ) : (
              <Empty title="There is no job yet">
                <p>Jobs appear here the moment they are enqueued, from your code, from SQL, or by hand.</p>
                {operate && (
                  <Link href="/enqueue" className="button" data-kind="main">
                    Enqueue one
                  </Link>
                )}
              </Empty>
            )
          }
          wrong={(error) => <Wrong error={error} />}
        />
      </section>
    </>
  );
}
