// stillwake enqueue: stores a job, prints its id, and stays with it if asked to.
import { InvalidInput } from "../errors.ts";
import { checkOneOf, conflicts } from "./checks.ts";
import type { Call } from "./command.ts";
import { followJob, printEvent } from "./follow.ts";
import { jsonOf, numberOf } from "./json-word.ts";

export async function enqueueCommand(call: Call): Promise<number> {
  const { flags, words, screen } = call;
  if (flags.follow && flags.wait) {
    throw new InvalidInput("--follow and --wait exclude one another", { remedy: "Give one of them" });
  }
  const body = {
    pipeline: words[0],
    input: jsonOf(words[1], "input"),
    key: flags.key,
    onConflict: checkOneOf(flags.onConflict, conflicts, "on-conflict"),
    idempotencyKey: flags.idempotencyKey,
    tenant: flags.tenant,
    delay: flags.delay,
    expiresIn: flags.expiresIn,
    priority: numberOf(flags.priority, "priority"),
    pool: flags.pool,
    attempts: numberOf(flags.attempts, "attempts"),
    webhook: flags.webhook === undefined ? undefined : webhookOf(flags.webhook),
  };
  const door = await call.door();
  const answer = await door.call("POST", "/v1/jobs", { body });
  if (!flags.json) screen.print(answer.id);
  else if (flags.follow) printEvent(screen, { event: "enqueued", data: answer });
  else if (!flags.wait) screen.json(answer);
  if (answer.existing) screen.say("It was there before.");
  return flags.follow || flags.wait ? followJob(call, answer.id, flags.wait && answer) : 0;
}

/** A URL, or the name of an endpoint. */
function webhookOf(given: string): string | { endpoint: string } {
  return given.includes("/") ? given : { endpoint: given };
}
