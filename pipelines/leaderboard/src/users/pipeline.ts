// The pipeline "leaderboard-users": looks up one batch of addresses. Processed addresses are marked in their rows, so that the
// next attempt continues with the rest, and a batch whose addresses were assigned to another one finds nothing to do.
import { applicationPool } from "@stillwake/kit/database";
import { userError } from "@stillwake/kit/failures";
import { implement, type StepHandle } from "stillwake/worker";
import { users } from "../contract.ts";
import { readSettings } from "../settings.ts";
import { findUser } from "./find.ts";
import { LookupError, openGitHub } from "./github.ts";
import { isStillAssigned, listUnprocessed, recordLookupError, settleEmail, settleKnown } from "./store.ts";

export default implement(users, async (job, batch) => {
  const settings = readSettings();
  const pool = applicationPool(settings.databaseUrl, "LEADERBOARD_DATABASE_URL");

  // In every attempt, because another repository's batch may have found some of them.
  const { known, completed } = await settleKnown(pool, batch);
  if (known > 0) job.log.info(`${contributors(known)} already known`);
  if (completed) job.log.success("Leaderboard complete");

  return job.step(
    "looking up",
    { end: ({ emails }) => (emails === 0 ? "No contributors left to look up" : `${contributors(emails)} looked up`) },
    async (step: StepHandle) => {
      const addresses = await listUnprocessed(pool, batch);
      if (addresses.length > 0) step.log.info(`Looking up ${contributors(addresses.length)}...`);
      const github = openGitHub(job, settings);
      const errors: string[] = [];
      let emails = 0;
      for (const [done, address] of addresses.entries()) {
        step.signal.throwIfAborted();
        // A query is cheaper than a GitHub call that another batch makes too.
        if (!(await isStillAssigned(pool, batch, address.email))) continue;
        emails += 1;
        try {
          const last = await settleEmail(pool, batch.repositoryId, address.email, await findUser(address, github));
          if (last) step.log.success("Leaderboard complete");
        } catch (error) {
          // A failed look-up is left for the next attempt; the others continue.
          if (!(error instanceof LookupError)) throw error;
          await recordLookupError(pool, batch, address.email, error.message);
          errors.push(error.message);
        }
        step.progress({ done: done + 1, total: addresses.length });
      }
      if (errors.length > 0) {
        throw userError(`${contributors(errors.length)} could not be looked up: ${errors[0]}`, {
          code: "LOOK_UP_FAILED",
        });
      }
      return { emails, calls: github.calls };
    },
  );
});

function contributors(count: number): string {
  return count === 1 ? "1 contributor" : `${count.toLocaleString("en-US")} contributors`;
}
