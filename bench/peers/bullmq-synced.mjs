// BullMQ with a Redis that syncs its file before each response.
import * as bullmq from "./bullmq.mjs";

export const { judge, producer, worker } = bullmq;

export function install(url) {
  return bullmq.install(url, "always");
}
