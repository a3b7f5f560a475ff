// Counts, durations, rates and failures as text: the same as dropflow/formatting.py, graph/drop_counts.py and
// web/cause_groups.py.

const DASH = "–";

/** @param {number} number */
export function formatCount(number) {
  return String(number).replace(/\B(?=(\d{3})+$)/g, ",");
}

/** @param {number | null | undefined} seconds */
export function formatDuration(seconds) {
  if (seconds === null || seconds === undefined || seconds < 0) return DASH;
  if (seconds < 9.995) return `${seconds.toFixed(2)} s`;
  if (seconds < 59.95) return `${seconds.toFixed(1)} s`;
  const whole = Math.round(seconds);
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${padded(whole % 60)} s`;
  if (whole < 86400) return `${Math.floor(whole / 3600)} h ${padded(Math.floor((whole % 3600) / 60))} min`;
  return `${Math.floor(whole / 86400)} d ${Math.floor((whole % 86400) / 3600)} h`;
}

/** @param {number} seconds with three digits below a second */
export function formatBrief(seconds) {
  if (!Number.isFinite(seconds)) return DASH;
  if (seconds >= 0.9995 || seconds < 0) return formatDuration(seconds);
  if (seconds < 0.9995e-3) return seconds ? `${Number((seconds * 1e6).toPrecision(3))} µs` : "0 s";
  return `${Number((seconds * 1e3).toPrecision(3))} ms`;
}

/** @param {number | null | undefined} seconds that are left, by an estimate */
export function formatRemaining(seconds) {
  return seconds !== null && seconds !== undefined && seconds < 1 ? "under 1 s" : formatDuration(seconds);
}

/** @param {number} seconds for which no drop has settled */
export function formatQuiet(seconds) {
  return `no drop settled for ${formatDuration(seconds)}`;
}

/** @param {number} rate drops per second */
export function formatRate(rate) {
  if (!rate) return DASH;
  const [whole, ...digits] = rate.toFixed(rate >= 10 ? 0 : rate >= 1 ? 1 : 2).split(".");
  return `${[formatCount(Number(whole)), ...digits].join(".")}/s`;
}

/** @param {object} counts numbers of drops, as `DropCounts` */
export function failedWords({ failed, took_along: along, lost }) {
  const found = [];
  if (failed + along) {
    const split = along ? `: ${formatCount(failed)} failed, ${formatCount(along)} taken along` : "";
    found.push(`${drops(failed + along)} in error${split}`);
  }
  if (lost) found.push(`${drops(lost)} lost`);
  return found.join("; ") || "no drop in error";
}

/** @param {object[]} failures those of one cause, as `FailureInfo` */
export function harmWords(failures) {
  const count = sum(failures, "count");
  const along = sum(failures, "took_along");
  if (!failures[0].drop) return count ? `${drops(count)} lost` : "";
  const found = [];
  if (count > along) found.push(`${formatCount(count - along)} failed`);
  if (along) found.push(`took ${formatCount(along)} along`);
  return found.join(", ");
}

function drops(number) {
  return `${formatCount(number)} ${number === 1 ? "drop" : "drops"}`;
}

function sum(records, name) {
  return records.reduce((total, record) => total + record[name], 0);
}

function padded(number) {
  return String(number).padStart(2, "0");
}
