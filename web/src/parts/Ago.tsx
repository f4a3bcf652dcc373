const UNITS: readonly [Intl.RelativeTimeFormatUnit, number][] = [
  ["year", 31_536_000],
  ["month", 2_592_000],
  ["day", 86_400],
  ["hour", 3_600],
  ["minute", 60],
];
const words = new Intl.RelativeTimeFormat("en", { numeric: "auto", style: "short" });

/** A time as people say it; the exact one is its title. */
export function Ago({ time }: { time: string }) {
  return (
    <time dateTime={time} title={new Date(time).toLocaleString()}>
      {said(new Date(time), new Date())}
    </time>
  );
}

export function said(time: Date, now: Date): string {
  const seconds = (time.getTime() - now.getTime()) / 1000;
  for (const [unit, length] of UNITS) {
    if (Math.abs(seconds) >= length) return words.format(Math.trunc(seconds / length), unit);
  }
  return "just now";
}
