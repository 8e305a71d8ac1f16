// stillwake enqueue: stores a job, prints its id and optionally follows it.
import { InvalidInput } from "../../errors.ts";
import type { api as apiTypes } from "../../server/index.ts";
import { escapeLine } from "../../text/escape.ts";
import type { ApiClient } from "../api-client.ts";
import { checkOneOf, conflictPolicies, parseInteger, parseJson } from "../arguments.ts";
import { apiFlags, type Command, type CommandContext } from "../command.ts";
import { followJob, printEvent } from "../output/follow.ts";
import type { Screen } from "../output/screen.ts";

export const enqueueCommand: Command = {
  name: "enqueue",
  group: "Jobs",
  summary: "enqueue a job",
  usage: ["<pipeline> [json|@file|-]"],
  args: [1, 2],
  flags: {
    key: "<key> at most one active job of the pipeline has this key, unless its contract allows more",
    "on-conflict": "<policy> when the key is taken: join, wait, replace, reject",
    "idempotency-key": "<key> a second call with it returns the job of the first call",
    tenant: "<tenant> that owns the job",
    delay: "<time> start after this time at the earliest, such as 30s",
    "expires-in": "<time> fail if no worker has started it by then",
    priority: "<n> higher runs first, -1000 to 1000",
    pool: "<name> instead of the pipeline's pool",
    attempts: "<n> the maximum number of attempts",
    webhook: "<url> to call when the job ends: a URL, or the name of an endpoint",
    follow: "then follow the job; exits 0 when it completed, 1 when it failed or was cancelled",
    wait: "like --follow, without the log lines",
    ...apiFlags,
  },
  examples: [
    [`enqueue extraction '{"repo":"acme/site"}'`, "prints the id of the job"],
    ["enqueue extraction @input.json --key acme --delay 30s", "with the input from a file"],
    ["enqueue extraction - --follow < input.json", "and follow it"],
  ],
  async run(context) {
    const { flags, args, screen } = context;
    if (flags.follow && flags.wait) {
      throw new InvalidInput("--follow and --wait are mutually exclusive", { remedy: "Pass one of them" });
    }
    const body = {
      pipeline: args[0],
      input: parseJson(args[1], "input"),
      key: flags.key,
      onConflict: checkOneOf(flags.onConflict, conflictPolicies, "on-conflict"),
      idempotencyKey: flags.idempotencyKey,
      tenant: flags.tenant,
      delay: flags.delay,
      expiresIn: flags.expiresIn,
      priority: parseInteger(flags.priority, "priority"),
      pool: flags.pool,
      attempts: parseInteger(flags.attempts, "attempts"),
      // An endpoint is named without a slash.
      webhook: flags.webhook?.includes("/") === false ? { endpoint: flags.webhook } : flags.webhook,
    };
    const api = await context.api();
    const enqueued = await api.call("POST", "/v1/jobs", { body });
    if (!flags.json) screen.print(enqueued.id);
    else if (flags.follow) printEvent(screen, { event: "enqueued", data: enqueued });
    else if (!flags.wait) screen.json(enqueued);
    if (enqueued.existing) screen.printStderr("The job existed already.");
    else if (pokesNobody(context)) await warnIfNoMachine(api, enqueued.id, screen).catch(() => {});
    return flags.follow || flags.wait ? followJob(context, enqueued.id, flags.wait && enqueued) : 0;
  },
};

/** Directly on the database and without STILLWAKE_POKE_URL no orchestrator is poked; a server pokes its own. */
function pokesNobody({ flags, config }: CommandContext): boolean {
  const server = flags.server ?? (flags.url ? undefined : config.server);
  return !server && Boolean(flags.url ?? config.databaseUrl) && !config.pokeUrl && flags.delay === undefined;
}

async function warnIfNoMachine(api: ApiClient, id: string, screen: Screen): Promise<void> {
  const [{ pool }, { pools }] = await Promise.all([api.call("GET", `/v1/jobs/${id}`), api.call("GET", "/v1/pools")]);
  const { machines, paused } = (pools as apiTypes.Pool[]).find(({ name }) => name === pool) ?? {};
  if (!machines || machines.now > 0 || paused) return;
  screen.printStderr(
    escapeLine(
      `Pool ${pool} has no running machine, and the orchestrator was not notified: set STILLWAKE_POKE_URL to its poke URL, or wait for the next watchdog or orchestrator --once.`,
    ),
  );
}
