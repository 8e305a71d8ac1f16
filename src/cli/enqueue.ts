// stillwake enqueue: stores a job, prints its id, and stays with it if asked to.
import { InvalidInput } from "../errors.ts";
import type { Call } from "./command.ts";
import { followJob } from "./follow.ts";
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
    onConflict: flags.onConflict,
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
  const stays = flags.follow || flags.wait;
  if (flags.json) screen.json(answer, { lines: Boolean(stays) });
  else screen.print(answer.id);
  if (answer.existing) screen.say("It was there before.");
  return stays ? followJob(call, answer.id, { quiet: Boolean(flags.wait) }) : 0;
}

/** A URL, or the name of an endpoint. */
function webhookOf(given: string): string | { endpoint: string } {
  return given.includes("/") ? given : { endpoint: given };
}
