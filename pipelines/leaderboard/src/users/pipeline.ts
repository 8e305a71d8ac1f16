// A batch of look-ups from top to bottom. What is done is marked in the rows themselves, so that an attempt after a death, a refusal or a used-up budget goes on with
// what is left, and a batch whose addresses were dealt out anew in the meantime finds nothing to do.
import { applicationPool } from "@stillwake/kit/database";
import { tell } from "@stillwake/kit/user-error";
import { implement, type StepHandle } from "stillwake/worker";
import { users } from "../contract.ts";
import { readSettings } from "../settings.ts";
import { find } from "./find.ts";
import { openGitHub, Trouble } from "./github.ts";
import { isLeft, noteTrouble, settle, settleKnown, unprocessed } from "./store.ts";

export default implement(users, async (job, batch) => {
  const settings = readSettings();
  const pool = applicationPool(settings.databaseUrl, "LEADERBOARD_DATABASE_URL");

  // In every attempt: another repository's batch may have found some of them by now.
  const { known, completed } = await settleKnown(pool, batch);
  if (known > 0) job.log.info(`${contributors(known)} known by now`);
  if (completed) job.log.success("Leaderboard complete");

  return job.step(
    "looking up",
    { end: ({ emails }) => (emails === 0 ? "Nobody is left to look up" : `${contributors(emails)} looked up`) },
    async (step: StepHandle) => {
      const addresses = await unprocessed(pool, batch);
      if (addresses.length > 0) step.log.info(`Looking up ${contributors(addresses.length)}...`);
      const github = openGitHub(job, settings);
      const troubles: string[] = [];
      let emails = 0;
      for (const [done, address] of addresses.entries()) {
        step.signal.throwIfAborted();
        // A look costs less than a question to GitHub that somebody else asks as well.
        if (!(await isLeft(pool, batch, address.email))) continue;
        emails += 1;
        try {
          const last = await settle(pool, batch.repositoryId, address.email, await find(address, github));
          if (last) step.log.success("Leaderboard complete");
        } catch (error) {
          // One that cannot be looked up is left for later, and is nothing to the others.
          if (!(error instanceof Trouble)) throw error;
          await noteTrouble(pool, batch, address.email, error.message);
          troubles.push(error.message);
        }
        step.progress({ done: done + 1, total: addresses.length });
      }
      if (troubles.length > 0) {
        throw tell(`${contributors(troubles.length)} could not be looked up: ${troubles[0]}`, {
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
