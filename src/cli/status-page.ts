// The small page `npm start` shows until there is a dashboard: pools, the latest jobs, one button. No script, no external assets.
import type { Job } from "../job.ts";
import type { Demand } from "../verbs.ts";

/** `button`: it may enqueue a job that says hello. */
export function statusPage(version: string, pools: Demand[], jobs: Job[], button: boolean): string {
  return `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="refresh" content="5">
<title>Stillwake</title>
<style>
  :root { color-scheme: light dark; --line: light-dark(#ddd, #333); --soft: light-dark(#666, #999); }
  body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
  h1 { font-size: 1.4rem; margin: 0; } h2 { font-size: 1rem; margin: 2rem 0 .5rem; } p { color: var(--soft); margin: .25rem 0 1rem; }
  table { border-collapse: collapse; width: 100%; } th, td { text-align: left; padding: .35rem .75rem .35rem 0; border-bottom: 1px solid var(--line); }
  th { font-weight: 500; color: var(--soft); } td.id { font-family: ui-monospace, monospace; font-size: .85em; }
  button { font: inherit; padding: .4rem 1rem; cursor: pointer; } .scroll { overflow-x: auto; }
  .completed { color: light-dark(#177245, #4ade80); } .failed { color: light-dark(#b42318, #f87171); } .running { color: light-dark(#1d4ed8, #60a5fa); }
</style>
<h1>Stillwake ${inText(version)}</h1>
<p>Durable pipelines on Postgres. Nothing lost, nothing idle.</p>
${button ? '<form method="post" action="/hello"><button>Enqueue a job</button></form>' : ""}
<p>The API is described at <a href="/docs">/docs</a>.</p>
<h2>Pools</h2>
<div class="scroll"><table>
<tr><th>Pool<th>Claimable<th>Running<th>Oldest<th>Next due</tr>
${pools.map(poolRow).join("\n")}
</table></div>
<h2>Latest jobs</h2>
<div class="scroll"><table>
<tr><th>Job<th>Pipeline<th>State<th>Attempt<th>Created<th>Took<th>Result</tr>
${jobs.map(jobRow).join("\n") || "<tr><td colspan=7>No jobs yet.</tr>"}
</table></div>
</html>
`;
}

function poolRow({ pool, paused, claimable, running, oldest, next_due }: Demand): string {
  return `<tr><td>${inText(pool)}${paused ? " (paused)" : ""}<td>${claimable}<td>${running}<td>${time(oldest)}<td>${time(next_due)}</tr>`;
}

function jobRow(job: Job): string {
  const took = job.startedAt && job.endedAt ? `${job.endedAt.getTime() - job.startedAt.getTime()} ms` : "";
  const result = job.failure?.message ?? (job.output === null ? "" : JSON.stringify(job.output));
  return `<tr><td class="id">${inText(job.id)}<td>${inText(job.pipeline)}<td class="${job.state}">${job.state}<td>${job.attempt} of ${job.maxAttempts}<td>${time(
    job.createdAt,
  )}<td>${took}<td>${inText(result.slice(0, 80))}</tr>`;
}

function time(value: Date | null): string {
  return value ? value.toISOString().slice(11, 19) : "–";
}

function inText(text: string): string {
  return text.replaceAll(/[&<>"']/g, (character) => `&#${character.charCodeAt(0)};`);
}
