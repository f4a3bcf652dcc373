/** The times of schedules as text. */

/** Frequent expressions, and what they mean. */
export const PRESETS: Readonly<Record<string, string>> = {
  "0 9 * * mon-fri": "Weekdays at 9:00",
  "0 9 * * *": "Every day at 9:00",
  "0 9 * * mon": "Mondays at 9:00",
  "0 9 1 * *": "On the first of the month at 9:00",
  "0 * * * *": "Every hour",
};

/** Formats a time in the time zone of its schedule: "Mon, 3 Nov, 09:00". */
export function localTime(time: string, timeZone: string): string {
  return new Date(time).toLocaleString("en-GB", {
    timeZone,
    weekday: "short",
    day: "numeric",
    month: "short",
    year: new Date(time).getFullYear() === new Date().getFullYear() ? undefined : "numeric",
    hour: "2-digit",
    minute: "2-digit",
  });
}

export function ownTimeZone(): string {
  return Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC";
}
