// stillwake enqueue: stores a job, prints its id, and stays with it if asked to.
import { InvalidInput } from "../../errors.ts";
import type { nouns } from "../../server/index.ts";
import type { Door } from "../api-client.ts";
import { checkOneOf, conflicts } from "../checks.ts";
import type { Call } from "../command.ts";
import { jsonOf, numberOf } from "../json-word.ts";
import { inLine } from "../output/escape.ts";
import { followJob, printEvent } from "../output/follow.ts";
import type { Screen } from "../output/screen.ts";

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
  else if (isUnheard(call)) await hint(door, answer.id, screen).catch(() => {});
  return flags.follow || flags.wait ? followJob(call, answer.id, flags.wait && answer) : 0;
}

/** On the database itself, without anybody who is told: a server tells its own orchestrator. */
function isUnheard({ flags, config }: Call): boolean {
  const server = flags.server ?? (flags.url ? undefined : config.server);
  return !server && Boolean(flags.url ?? config.databaseUrl) && !config.pokeUrl && flags.delay === undefined;
}

/** Where machines come when there is work, and none is up: the job is safe, and nobody knows of it yet. */
async function hint(door: Door, id: string, screen: Screen): Promise<void> {
  const [{ pool }, { pools }] = await Promise.all([door.call("GET", `/v1/jobs/${id}`), door.call("GET", "/v1/pools")]);
  const { machines, paused } = (pools as nouns.Pool[]).find(({ name }) => name === pool) ?? {};
  if (!machines || machines.now > 0 || paused) return;
  screen.say(
    inLine(
      `No machine of pool ${pool} is up, and nobody was told of the job: set STILLWAKE_POKE_URL to where the orchestrator hears pokes, or wait for the next watchdog or orchestrator --once.`,
    ),
  );
}

/** A URL, or the name of an endpoint. */
function webhookOf(given: string): string | { endpoint: string } {
  return given.includes("/") ? given : { endpoint: given };
}
