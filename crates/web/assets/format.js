// Numbers for people.

const UNITS = ["", "k", "M", "G", "T", "P"];

/** A number with a unit: 12, 3.4 k, 56 M. */
export function short(value, unit = "") {
  let at = 0;
  while (value >= 999.5 && at < UNITS.length - 1) {
    value /= 1000;
    at += 1;
  }
  const digits = value >= 100 || Number.isInteger(value) ? 0 : value >= 10 ? 1 : 2;
  const suffix = UNITS[at] + unit;
  return value.toFixed(digits) + (suffix ? "\u202f" + suffix : "");
}

/** A whole number in groups of three. */
export const whole = (value) => Number(value ?? 0).toLocaleString("en").replaceAll(",", "\u202f");

/** A time in milliseconds: 1.2 s, 5 min, 3 h. */
export function time(ms) {
  if (ms < 1000) return `${ms}\u202fms`;
  if (ms < 120_000) return `${(ms / 1000).toFixed(ms < 10_000 ? 1 : 0)}\u202fs`;
  if (ms < 7_200_000) return `${Math.round(ms / 60_000)}\u202fmin`;
  return `${(ms / 3_600_000).toFixed(1)}\u202fh`;
}

/** An address and a port. */
export const endpoint = (address, port) => (address.includes(":") ? `[${address}]:${port}` : `${address}:${port}`);

/** Events a second between two counts; 0 after the counters were cleared. */
export const rate = (now, before, ms) => (ms > 0 ? Math.max(0, ((now - before) * 1000) / ms) : 0);
