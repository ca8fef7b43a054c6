// What both pages share: the pause button, the sign of life, the asking for a key, and copying.

import { el, show } from "./dom.js";
import { useKey } from "./server.js";

const UNAUTHORIZED = [401, 403];

/** Lets the button stop and resume a poll, and puts the page's name into the navigation. */
export function control(poll, page) {
  const button = document.getElementById("pause");
  button.hidden = false;
  button.addEventListener("click", () => {
    poll.isPaused = !poll.isPaused;
    button.setAttribute("aria-pressed", String(poll.isPaused));
    button.textContent = poll.isPaused ? "Resume" : "Pause";
    if (poll.isPaused) showPulse("paused", "Paused");
    else poll.once();
  });
  document.querySelector(`nav [data-page="${page}"]`).setAttribute("aria-current", "page");
}

/** The sign of life beside the buttons: `state` is live, paused or lost. */
export function showPulse(state, text) {
  const pulse = document.getElementById("pulse");
  if (pulse.dataset.state === state && pulse.textContent === text) return;
  pulse.dataset.state = state;
  pulse.textContent = text;
}

/** What to show instead of figures that were refused; where a key is missing, a form that asks for it. */
export function refusal(error) {
  showPulse("lost", error.status ? "No figures" : "No answer");
  return el(
    "section",
    { class: "card refusal", "data-key": "refusal", role: "alert" },
    el("h2", {}, error.status ? "The server gives no figures" : "The server does not answer"),
    el("p", {}, error.message),
    UNAUTHORIZED.includes(error.status) ? keyForm() : el("p", { class: "muted" }, "The page asks again by itself."),
  );
}

/** Asks for an API key, which every later question carries. */
export function keyForm() {
  return el(
    "form",
    { class: "key", "data-action": "key" },
    el("label", { for: "key" }, "API key"),
    el("input", { id: "key", name: "key", type: "password", autocomplete: "off", required: true }),
    el("button", { type: "submit" }, "Use this key"),
    el("p", { class: "muted" }, "It is kept until this tab is closed."),
  );
}

/** Serves what is clicked anywhere in `root`: `actions` by the names in `data-action`. */
export function serveActions(root, poll, actions = {}) {
  root.addEventListener("submit", (event) => {
    if (event.target.dataset.action !== "key") return;
    event.preventDefault();
    useKey(new FormData(event.target).get("key"));
    poll.once();
  });
  root.addEventListener("click", (event) => {
    const button = event.target.closest("button[data-action]");
    if (!button) return;
    if (button.dataset.action === "copy") copy(button);
    actions[button.dataset.action]?.(button);
  });
}

/** A block of text to take along: a card's lines or a command. */
export function snippet(label, text) {
  return el(
    "figure",
    { class: "snippet" },
    el("figcaption", {}, label),
    el("pre", { tabindex: "0", "aria-label": label }, el("code", {}, text)),
    el("button", { type: "button", class: "quiet", "data-action": "copy" }, "Copy"),
  );
}

async function copy(button) {
  const code = button.parentElement.querySelector("code");
  try {
    await navigator.clipboard.writeText(code.textContent);
    button.textContent = "Copied";
  } catch {
    // Browsers offer the clipboard to secure origins alone; there the reader copies what is marked.
    getSelection().selectAllChildren(code);
    button.textContent = "Marked";
  }
  setTimeout(() => {
    button.textContent = "Copy";
  }, 1500);
}

/** Fills `main` with empty sections, so that each can be brought up to date by itself. */
export function layOut(main, names) {
  const sections = {};
  for (const name of names) sections[name] = el("div", { id: name, class: "slot" });
  show(main, Object.values(sections));
  return Object.fromEntries(names.map((name) => [name, document.getElementById(name)]));
}
