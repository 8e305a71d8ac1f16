// Applies the schedules of stillwake.config to the database, after the pipelines were registered.

import type { StillwakeConfig } from "../client/define-config.ts";
import type { Schedule } from "../contract/schedule.ts";
import { InvalidInput } from "../errors.ts";

export interface ProjectSchedulesOptions {
  url: string;
  schema: string;
  sealKeys?: NonNullable<StillwakeConfig["sealKeys"]>;
  print(level: "info" | "warn", message: string): void;
}

/** Sets each one; what has not changed is left alone. Schedules that the file does not have are reported, not removed. */
export async function applySchedules(schedules: unknown, options: ProjectSchedulesOptions): Promise<void> {
  if (schedules === undefined) return;
  const wanted = checkSchedules(schedules);
  const { createStillwake } = await import("../client/client.ts");
  const { print, ...connection } = options;
  const stillwake = createStillwake({ ...connection, connections: 1, retryTimeout: "10s" });
  try {
    for (const schedule of wanted) {
      if (await stillwake.schedules.set(schedule)) print("info", `schedule ${schedule.name} is set`);
    }
    const names = wanted.map(({ name }) => name);
    const others = (await stillwake.schedules.list()).filter(({ name }) => !names.includes(name));
    if (others.length > 0) {
      const list = others.map(({ name }) => name).join(", ");
      print(
        "warn",
        `schedules that stillwake.config does not have, and that stay: ${list}. Remove one with stillwake schedules remove <name>`,
      );
    }
  } finally {
    await stillwake.close();
  }
}

/** The same, where an error must not stop the process, such as a login that may not set schedules. */
export async function tryApplySchedules(schedules: unknown, options: ProjectSchedulesOptions): Promise<void> {
  await applySchedules(schedules, options).catch((error: Error & { code?: string }) => {
    const remedy =
      error.code === "42501" ? ". Run stillwake register with a login that has the role stillwake_app" : "";
    options.print("warn", `The schedules of stillwake.config could not be set: ${error.message}${remedy}`);
  });
}

function checkSchedules(schedules: unknown): Schedule[] {
  const isSchedule = (value: unknown) => (value as Schedule | null)?.kind === "schedule";
  if (Array.isArray(schedules) && schedules.every(isSchedule)) return schedules;
  throw new InvalidInput("schedules of the configuration is not a list of schedules", {
    field: "schedules",
    remedy: 'Write schedules: [schedule("nightly", { cron: "30 2 * * *", pipeline: report })]',
  });
}
