// Numbers as people read them. A value that there is not is a dash.

const DASH = "–";

function digits(value: number): string {
  const size = Math.abs(value);
  if (size >= 1000) return Math.round(value).toLocaleString("en");
  if (size >= 100) return value.toFixed(0);
  if (size >= 10) return value.toFixed(1);
  return value === 0 ? "0" : value.toFixed(size >= 1 ? 2 : 3).replace(/0+$/, "").replace(/\.$/, "");
}

function scaled(value: number, units: [number, string][]): string {
  if (!Number.isFinite(value)) return DASH;
  const [size, unit] = units.find(([size]) => Math.abs(value) >= size * 0.9995) ?? units[units.length - 1]!;
  return `${digits(value / size)} ${unit}`;
}

export const bytes = (value: number) =>
  Math.abs(value) < 999.5 ? `${Math.round(value)} B` : scaled(value, [[1e9, "GB"], [1e6, "MB"], [1e3, "kB"]]);
export const rate = (bps: number) => scaled(bps, [[1e9, "Gbit/s"], [1e6, "Mbit/s"], [1e3, "kbit/s"], [1, "bit/s"]]);
export const whole = (value: number) => (Number.isFinite(value) ? Math.round(value).toLocaleString("en") : DASH);
export const count = (value: number) => (Number.isFinite(value) ? digits(value) : DASH);

export function time(seconds: number): string {
  return seconds === 0 ? "0 ms" : scaled(seconds, [[1, "s"], [1e-3, "ms"], [1e-6, "µs"], [1e-9, "ns"]]);
}

/** The same without zeros that say nothing, for the labels of an axis. */
export const tick = (text: string) => text.replace(/\.0+(?= |$)/, "");

/** A metric of a table, with up to four digits. */
export function metric(value: number | undefined): string {
  if (value === undefined) return DASH;
  return Math.abs(value) >= 1000 ? Math.round(value).toLocaleString("en") : String(Number(value.toPrecision(4)));
}

/** How many times, for "25 × less". */
export function times(ratio: number): string {
  return ratio >= 10 ? String(Math.round(ratio)) : ratio.toFixed(1);
}
