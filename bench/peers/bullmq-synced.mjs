// BullMQ with Redis syncing its file before it answers.
import * as bullmq from "./bullmq.mjs";

export const { judge, producer, worker } = bullmq;

export function install(url) {
  return bullmq.install(url, "always");
}
