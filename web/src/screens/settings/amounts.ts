/** Formats amounts for people. */

const UNITS = ["bytes", "kB", "MB", "GB", "TB"] as const;

export function bytes(many: number): string {
  let amount = many;
  let unit = 0;
  while (amount >= 1000 && unit < UNITS.length - 1) {
    amount /= 1000;
    unit += 1;
  }
  return `${amount < 10 && unit > 0 ? amount.toFixed(1) : Math.round(amount)} ${UNITS[unit]}`;
}

/** Formats a time in days with a suitable unit. */
export function days(many: number): string {
  if (many >= 1) return plural(Math.round(many), "day");
  const hours = many * 24;
  if (hours >= 1) return plural(Math.round(hours), "hour");
  const minutes = hours * 60;
  return minutes >= 1 ? plural(Math.round(minutes), "minute") : plural(Math.round(minutes * 60), "second");
}

function plural(many: number, unit: string): string {
  return `${many} ${unit}${many === 1 ? "" : "s"}`;
}
