/** When a message was sent, in the reader's time zone: the time, and the day unless it is today. */

// Creating a formatter takes longer than rendering a message.
const TIME = new Intl.DateTimeFormat(undefined, { timeStyle: "short" });
const DAY = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric", hour: "numeric", minute: "2-digit" });
const FULL = new Intl.DateTimeFormat(undefined, { dateStyle: "full", timeStyle: "long" });

export function MessageTime({ time }: { time: Date }) {
  const isToday = new Date().toDateString() === time.toDateString();
  return (
    <time
      dateTime={time.toISOString()}
      onPointerEnter={(event) => {
        event.currentTarget.title = FULL.format(time);
      }}
      className="shrink-0 text-xs text-muted"
    >
      {(isToday ? TIME : DAY).format(time)}
    </time>
  );
}
