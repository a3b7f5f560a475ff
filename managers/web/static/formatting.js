// Counts, durations and rates as text: the same as dropflow/formatting.py.

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

/** @param {number | null | undefined} seconds that are left, by an estimate */
export function formatRemaining(seconds) {
  return seconds !== null && seconds !== undefined && seconds < 1 ? "under 1 s" : formatDuration(seconds);
}

/** @param {number} rate drops per second */
export function formatRate(rate) {
  if (!rate) return DASH;
  const [whole, ...digits] = rate.toFixed(rate >= 10 ? 0 : rate >= 1 ? 1 : 2).split(".");
  return `${[formatCount(Number(whole)), ...digits].join(".")}/s`;
}

function padded(number) {
  return String(number).padStart(2, "0");
}
