// The indicator that shows whether the page is up to date.

const WORDS = {
  live: "live",
  polling: "live, by asking",
  over: "over",
  lost: "connection lost, trying again",
  gone: "this was deleted",
  locked: "please log in again",
};

/**
 * @param {keyof typeof WORDS} state
 * @param {string} [words] text instead of the default
 */
export function tell(state, words) {
  const sign = document.getElementById("live");
  if (!sign) return;
  const text = words || WORDS[state];
  const looks = state === "gone" || state === "locked" ? "lost" : state;
  if (sign.dataset.state === looks && sign.textContent === text) return;
  sign.hidden = false;
  sign.dataset.state = looks;
  sign.textContent = text;
}
