// Describes common cron expressions in words. Expressions that it cannot describe exactly have no description.

const nicknames: Record<string, string> = {
  "@hourly": "0 * * * *",
  "@daily": "0 0 * * *",
  "@weekly": "0 0 * * 0",
  "@monthly": "0 0 1 * *",
  "@yearly": "0 0 1 1 *",
};
const dayNames = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const monthNames = "January February March April May June July August September October November December".split(" ");
const shortDays = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];
const shortMonths = ["", ...monthNames.map((name) => name.slice(0, 3).toLowerCase())];

/** "Every day at 02:30"; undefined if there is no exact description. */
export function describeCron(cron: string): string | undefined {
  const fields = (nicknames[cron.trim().toLowerCase()] ?? cron).trim().toLowerCase().split(/\s+/);
  if (fields.length !== 5) return undefined;
  const [minute, hour, day, month, weekday] = fields as [string, string, string, string, string];
  const days = describeDays(day, month, weekday);
  if (days === undefined) return undefined;
  const interval = describeInterval(minute, hour);
  if (interval !== undefined) return days === "every day" ? capitalize(interval) : capitalize(`${days}, ${interval}`);
  const times = describeTimes(minute, hour);
  return times && capitalize(`${days} at ${times}`);
}

/** Repeated within a day. */
function describeInterval(minute: string, hour: string): string | undefined {
  const isAllDay = hour === "*" || hour === "*/1" || hour === "0-23";
  const step = stepOf(minute, 60);
  const range = /^(\d+)-(\d+)$/.exec(hour);
  if (step !== undefined) {
    const every = step === 1 ? "every minute" : `every ${step} minutes`;
    if (isAllDay) return every;
    const [from, to] = range ? [Number(range[1]), Number(range[2])] : [undefined, 24];
    if (from === undefined || to > 23 || from > to) return undefined;
    return `${every} from ${clock(from, 0)} to ${clock(to, 60 - step)}`;
  }
  const at = parseValues(minute, 0, 59);
  if (at?.length !== 1) return undefined;
  const [only] = at as [number];
  const when = only === 0 ? "on the hour" : `at ${only} ${only === 1 ? "minute" : "minutes"} past`;
  if (isAllDay) return `every hour ${when}`;
  const hours = stepOf(hour, 24);
  if (hours !== undefined) return `every ${hours} hours from ${clock(0, only)}`;
  if (!range || Number(range[2]) > 23 || Number(range[1]) >= Number(range[2])) return undefined;
  return `every hour from ${clock(Number(range[1]), only)} to ${clock(Number(range[2]), only)}`;
}

/** Up to four times of day. */
function describeTimes(minute: string, hour: string): string | undefined {
  const minutes = parseValues(minute, 0, 59);
  const hours = parseValues(hour, 0, 23);
  if (!minutes || !hours || minutes.length * hours.length > 4) return undefined;
  return list(hours.flatMap((h) => minutes.map((m) => clock(h, m))));
}

function describeDays(day: string, month: string, weekday: string): string | undefined {
  const months = month === "*" ? [] : parseValues(month, 1, 12, shortMonths);
  if (!months) return undefined;
  const inMonths = months.length > 0 ? list(months.map((number) => monthNames[number - 1]!)) : undefined;
  // If both are restricted, either of them matches, which has no short description.
  if (day !== "*" && weekday !== "*") return undefined;
  if (weekday !== "*") {
    const days = describeWeekdays(weekday);
    return days && (inMonths ? `${days} in ${inMonths}` : days);
  }
  if (day === "*") return inMonths ? `every day in ${inMonths}` : "every day";
  const days = parseValues(day, 1, 31);
  if (!days) return undefined;
  const on = `on the ${list(days.map(ordinal))}`;
  return inMonths ? `${on} of ${inMonths}` : `${on} of every month`;
}

function describeWeekdays(weekday: string): string | undefined {
  const range = /^([a-z0-9]+)-([a-z0-9]+)$/.exec(weekday);
  if (range) {
    const from = parseValue(range[1]!, 0, 7, shortDays);
    const to = parseValue(range[2]!, 0, 7, shortDays);
    if (from === undefined || to === undefined || from >= to || to - from > 5) return undefined;
    return `${dayNames[from % 7]} to ${dayNames[to % 7]}`;
  }
  // Sunday is 0 or 7; it is listed last.
  const days = parseValues(weekday, 0, 7, shortDays)?.map((weekday) => weekday || 7);
  return days && `every ${list([...new Set(days)].sort().map((weekday) => dayNames[weekday % 7]!))}`;
}

/** The step of "*" and of steps that divide the whole. Other steps restart with each hour or day and are irregular. */
function stepOf(field: string, whole: number): number | undefined {
  if (field === "*") return whole === 60 ? 1 : undefined;
  const step = Number(/^\*\/(\d+)$/.exec(field)?.[1]);
  return step > 0 && step < whole && whole % step === 0 ? step : undefined;
}

/** One value or a list of values, sorted. */
function parseValues(field: string, min: number, max: number, names: readonly string[] = []): number[] | undefined {
  const found = field.split(",").map((word) => parseValue(word, min, max, names));
  if (found.some((value) => value === undefined)) return undefined;
  return [...new Set(found as number[])].sort((a, b) => a - b);
}

function parseValue(word: string, min: number, max: number, names: readonly string[]): number | undefined {
  const value = /^\d+$/.test(word) ? Number(word) : names.indexOf(word);
  return word !== "" && value >= min && value <= max ? value : undefined;
}

const clock = (hour: number, minute: number) => `${String(hour).padStart(2, "0")}:${String(minute).padStart(2, "0")}`;

function ordinal(value: number): string {
  const last = value % 10;
  const teens = value > 10 && value < 14;
  return `${value}${teens ? "th" : last === 1 ? "st" : last === 2 ? "nd" : last === 3 ? "rd" : "th"}`;
}

function list(words: string[]): string {
  return words.length < 2 ? words.join("") : `${words.slice(0, -1).join(", ")} and ${words.at(-1)}`;
}

function capitalize(words: string): string {
  return words.charAt(0).toUpperCase() + words.slice(1);
}
