/** Formats amounts of money and tokens for people. */

const dollarsOf = (digits: number) =>
  new Intl.NumberFormat("en", {
    style: "currency",
    currency: "USD",
    minimumFractionDigits: 2,
    maximumFractionDigits: digits,
  });
const EXACT = dollarsOf(4);
const ROUNDED = dollarsOf(2);
const COMPACT = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

/** Small amounts have more digits: a turn often costs less than a cent. Others have cents, so that they line up. */
export function dollars(amount: number): string {
  if (amount > 0 && amount < 0.0001) return "< $0.0001";
  return (amount < 0.1 ? EXACT : ROUNDED).format(amount);
}

/** The cost as far as it is known. Without a known price, it says so instead of zero. */
export function cost(known: number, unpricedTurns: number): string {
  if (unpricedTurns === 0) return dollars(known);
  return known === 0 ? "unknown price" : `${dollars(known)} + unknown price`;
}

export function compact(amount: number): string {
  return COMPACT.format(amount);
}
