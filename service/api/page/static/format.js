// Numbers as they are read at a glance. Null is "not known", which is a dash and never zero.

export const UNKNOWN = "–";

const isKnown = (value) => value !== null && value !== undefined;
const digits = (value, count = 3) =>
  Math.abs(value) >= 1000 ? Math.round(value).toLocaleString("en") : String(Number(value.toPrecision(count)));

/** Seconds in the unit that suits them. */
export function duration(seconds) {
  if (!isKnown(seconds)) return UNKNOWN;
  const size = Math.abs(seconds);
  if (size === 0) return "0";
  if (size >= 1) return `${digits(seconds)} s`;
  if (size >= 1e-3) return `${digits(seconds * 1e3)} ms`;
  return `${digits(seconds * 1e6)} µs`;
}

/** A share of one in percent. */
export function share(ratio) {
  return isKnown(ratio) ? `${(ratio * 100).toFixed(Math.abs(ratio) >= 0.9995 || ratio === 0 ? 0 : 1)} %` : UNKNOWN;
}

/** A plain number. */
export function count(value) {
  return isKnown(value) ? digits(value) : UNKNOWN;
}

/** A number with a unit and the prefix of thousands that suits it. */
export function scaled(value, unit) {
  if (!isKnown(value)) return UNKNOWN;
  const prefixes = ["", "k", "M", "G", "T", "P"];
  let step = 0;
  let rest = value;
  while (Math.abs(rest) >= 1000 && step < prefixes.length - 1) {
    rest /= 1000;
    step += 1;
  }
  return `${digits(rest)} ${prefixes[step]}${unit}`;
}

/** A number of the evidence in its own unit. */
export function quantity(value, unit) {
  if (!isKnown(value)) return UNKNOWN;
  if (unit === "s") return duration(value);
  if (unit === "ratio") return Math.abs(value) <= 1 ? share(value) : `${digits(value)} ×`;
  if (unit === "bytes") return scaled(value, "B");
  if (unit === "bytes/s") return scaled(value, "B/s");
  return unit ? `${digits(value)} ${unit}` : digits(value);
}

const METRICS = { latency_mean: "mean latency", latency_p99: "p99 latency", throughput: "throughput" };

/** The name of what a gain betters. */
export function metricName(metric) {
  return METRICS[metric] ?? metric;
}

/** A gain in one line: by how much, within which bounds. */
export function gainText(gain) {
  const sign = gain.metric === "throughput" ? "+" : "−";
  return `${sign}${share(gain.value)} ${metricName(gain.metric)}`;
}
