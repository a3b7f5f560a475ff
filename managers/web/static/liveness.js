// The small sign that says whether what the page shows is of now.

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
 * @param {string} [words] instead of the usual ones
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
