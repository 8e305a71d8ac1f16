// stillwake webhooks: sends what is due and ends, for a cron where no worker stays up. Where to is allowed comes from the configuration file, as for
// a worker.
import type { WebhookSenderOptions } from "../webhooks/options.ts";
import { createSender, type SentWebhook } from "../webhooks/sender.ts";
import { loadConfigFile } from "./config-file.ts";
import { needUrl } from "./migrate.ts";

/** As long as a cron of every minute leaves it, and as a claim lasts. */
const LIMIT_MS = 50_000;

export async function webhooksCommand(options: {
  url: string | undefined;
  schema: string;
  json: boolean;
  config: string | undefined;
}): Promise<number> {
  const { webhooks } = await loadConfigFile(options.config);
  let trouble: Error | undefined;
  const count = { delivered: 0, pending: 0, failed: 0, lost: 0 };
  const sender = createSender({
    ...((webhooks || {}) as WebhookSenderOptions),
    url: needUrl(options.url),
    schema: options.schema,
    patience: "10s",
    onSent: ({ state }: SentWebhook) => {
      count[state] += 1;
    },
    onTrouble: (error) => {
      trouble ??= error as Error;
    },
  });
  await sender.flush(LIMIT_MS).finally(() => sender.stop());
  const { delivered, pending, failed, lost } = count;
  if (options.json) console.log(JSON.stringify(count));
  else
    console.log(`${delivered} delivered, ${pending} to be tried again, ${failed} failed, ${lost} taken over by others`);
  if (!trouble) return 0;
  console.error(trouble.message);
  return 1;
}
