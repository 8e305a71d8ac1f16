// Descriptions of cron expressions on the schedules page: exact or none.
import { describe, expect, it } from "vitest";
import { describeCron } from "../../web/src/pages/schedules/describe-cron.ts";

describe("describeCron", () => {
  it.each([
    ["30 2 * * *", "Every day at 02:30"],
    ["0 7 * * mon", "Every Monday at 07:00"],
    ["0 9,17 * * 1-5", "Monday to Friday at 09:00 and 17:00"],
    ["0 8 * * 0,6", "Every Saturday and Sunday at 08:00"],
    ["0 8 * * 7", "Every Sunday at 08:00"],
    ["*/15 * * * *", "Every 15 minutes"],
    ["* * * * *", "Every minute"],
    ["5 * * * *", "Every hour at 5 minutes past"],
    ["0 */6 * * *", "Every 6 hours from 00:00"],
    ["0 0 1 * *", "On the 1st of every month at 00:00"],
    ["0 12 24 dec *", "On the 24th of December at 12:00"],
    ["0 0 1 may *", "On the 1st of May at 00:00"],
    ["*/10 9-16 * * *", "Every 10 minutes from 09:00 to 16:50"],
    ["@hourly", "Every hour on the hour"],
    ["@weekly", "Every Sunday at 00:00"],
  ])("describes %s as %s", (cron, text) => {
    expect(describeCron(cron)).toBe(text);
  });

  it.each([
    "*/7 * * * *",
    "0 */5 * * *",
    "0 0 13 * 5",
    "0 0 * * 5-2",
    "61 * * * *",
    "0 0 32 * *",
    "",
    "0 0 * *",
    "0 0 L * *",
    "a b c d e",
  ])("returns undefined for %s, which is invalid or has no exact description", (cron) => {
    expect(describeCron(cron)).toBeUndefined();
  });
});
