import type { Read } from "./read.ts";

const units: Readonly<Record<string, number>> = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000, w: 604_800_000 };
const form = /^(\d{1,12}(?:\.\d{1,3})?)(ms|s|m|h|d|w)$/;

/** "100ms", "10s", "5m", "2h", "7d", "1w" in milliseconds. A bare number is refused: nobody can see its unit. */
export function duration(leastMs: number, mostMs: number): Read<number> {
  return (text, refuse) => {
    const [, amount, unit] = form.exec(text) ?? [];
    if (amount === undefined || unit === undefined) {
      return refuse(`must be a time such as 100ms, 10s, 5m, 2h or 7d, not ${JSON.stringify(text)}`);
    }
    const ms = Math.round(Number(amount) * units[unit]!);
    if (ms < leastMs || ms > mostMs) return refuse(`must be from ${inWords(leastMs)} to ${inWords(mostMs)}, not ${text}`);
    return ms;
  };
}

/** In the largest unit that fits, with one digit after the point: 1500 is "1.5s", 90000 is "1.5m". */
export function inWords(ms: number): string {
  const [unit, size] = Object.entries(units)
    .filter(([name]) => name !== "w")
    .reverse()
    .find(([, each]) => ms >= each) ?? ["ms", 1];
  return `${Number((ms / size).toFixed(1))}${unit}`;
}
