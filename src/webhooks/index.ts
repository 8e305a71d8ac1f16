// stillwake/webhooks: verification for receivers of webhooks. Free of Node and of the database.
export {
  InvalidWebhook,
  type SeenIds,
  signWebhook,
  type VerifyOptions,
  verifyWebhook,
  type WebhookHeaders,
  type WebhookPayload,
} from "./signature.ts";
