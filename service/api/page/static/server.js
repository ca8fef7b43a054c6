// Asks the server, with the key that the reader gave; and asks again and again while the page is seen.

const KEY = "inferlane-api-key";
const SLOWEST_MS = 30_000;

/** An answer that is not the figures asked for: the server's own words, and its status (0: none came). */
export class Refused extends Error {
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

/** The JSON behind an address of this server. Raises Refused. */
export async function ask(path, { method = "GET", body } = {}) {
  const headers = { Accept: "application/json" };
  const key = sessionStorage.getItem(KEY);
  if (key) headers.Authorization = `Bearer ${key}`;
  if (body) headers["Content-Type"] = "application/json";
  let answer;
  try {
    answer = await fetch(path, { method, headers, body: body && JSON.stringify(body), cache: "no-store" });
  } catch {
    throw new Refused("the server does not answer", 0);
  }
  const content = await answer.json().catch(() => null);
  if (!answer.ok) throw new Refused(String(content?.error ?? `status ${answer.status}`), answer.status);
  return content;
}

/** Keeps the key for as long as this tab lives. */
export function useKey(key) {
  sessionStorage.setItem(KEY, key);
}

/** Runs `task` every `interval_ms` after it ended, at once to begin with; never while the page is hidden or paused. */
export class Poll {
  #task;
  #interval_ms;
  #timer = 0;
  #failures = 0;
  #isRunning = false;
  #isWanted = false;
  isPaused = false;

  constructor(task, interval_ms) {
    this.#task = task;
    this.#interval_ms = interval_ms;
    document.addEventListener("visibilitychange", () => this.now());
  }

  /** Runs the task without waiting any longer; once more afterwards if it is running now. */
  async now() {
    clearTimeout(this.#timer);
    if (this.#isRunning) {
      this.#isWanted = true;
      return;
    }
    if (document.hidden || (this.isPaused && this.#failures === 0 && !this.#isWanted)) return;
    this.#isRunning = true;
    this.#isWanted = false;
    let hasSucceeded = false;
    try {
      hasSucceeded = await this.#task();
    } finally {
      this.#isRunning = false;
      this.#failures = hasSucceeded ? 0 : this.#failures + 1;
      this.#wait();
    }
  }

  #wait() {
    if (this.#isWanted) this.now();
    else if (!this.isPaused) {
      this.#timer = setTimeout(() => this.now(), Math.min(SLOWEST_MS, this.#interval_ms * 2 ** this.#failures));
    }
  }

  /** Runs the task once, paused or not. */
  once() {
    this.#isWanted = true;
    return this.now();
  }
}
