// Asks the server to experiment on itself, and shows how far it is.

import { el, show } from "./dom.js";
import { keyForm } from "./frame.js";
import { sentence } from "./headline.js";
import { Refused, ask } from "./server.js";
import { section } from "./stages.js";

const EVERY_MS = 1000;
const OVER = new Set(["done", "skipped", "failed", "stopped"]);
const MARKS = { done: "✓", failed: "✗", running: "…", skipped: "–", stopped: "–" };
const KINDS = { done: "passed", failed: "failed" };
const MODES = {
  shadow: "Beside the traffic, with a small share of the device.",
  exclusive: "Requests wait for up to some seconds meanwhile.",
};

/** The part of the page about probes; `onEnd` is called when a run has ended. */
export class ProbesView {
  #place;
  #onEnd;
  #isOffered = false;
  #model = null;
  #run = null;
  #problem = null;
  #timer = 0;

  constructor(place, onEnd) {
    this.#place = place;
    this.#onEnd = onEnd;
  }

  /** Whether this server runs probes at all. */
  offer(isOffered) {
    this.#isOffered = isOffered;
  }

  /** Brings the part up to date; `model` is whom a run would be about. */
  render(model) {
    this.#model = model;
    show(this.#place, this.#isOffered ? this.#section() : null);
  }

  /** Begins a run. */
  async begin(mode) {
    await this.#try(async () => {
      this.#run = await ask("diagnose/probes", { method: "POST", body: { model: this.#model, probes: "all", mode } });
      this.#watch();
    });
  }

  /** Ends a run early. */
  async cancel() {
    await this.#try(() => ask(`diagnose/probes/${encodeURIComponent(this.#run.id)}`, { method: "DELETE" }));
  }

  #watch() {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(
      () =>
        this.#try(async () => {
          this.#run = await ask(`diagnose/probes/${encodeURIComponent(this.#run.id)}`);
          if (this.#isAtWork) this.#watch();
          else this.#onEnd();
        }),
      EVERY_MS,
    );
  }

  async #try(task) {
    try {
      await task();
      this.#problem = null;
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      this.#problem = error;
    }
    this.render(this.#model);
  }

  get #isAtWork() {
    return this.#run?.state === "running";
  }

  #section() {
    return section(
      "Probes",
      el(
        "p",
        {},
        "Controlled experiments on a spare lane decide what traffic alone cannot tell. They need the server's administration key where it has one.",
      ),
      this.#isAtWork
        ? el("button", { type: "button", "data-action": "cancel" }, "Cancel the run")
        : el(
            "div",
            { class: "choices" },
            Object.entries(MODES).map(([mode, meaning]) =>
              el(
                "div",
                {},
                el("button", { type: "button", "data-action": "probe", "data-mode": mode }, `Run, ${mode}`),
                el("small", { class: "muted" }, meaning),
              ),
            ),
          ),
      this.#run ? this.#progress() : null,
      this.#problem ? el("p", { role: "alert", class: "problem" }, this.#problem.message) : null,
      this.#problem && isAboutKeys(this.#problem) ? keyForm() : null,
    );
  }

  #progress() {
    const { id, model, mode, state, probes } = this.#run;
    const over = probes.filter((probe) => OVER.has(probe.state)).length;
    return [
      el("p", { role: "status" }, `Run ${id} on ${model}, ${mode}: ${state}, ${over} of ${probes.length} probes over`),
      el("progress", { max: String(probes.length), value: String(over), "aria-label": "Probes that are over" }),
      el(
        "ul",
        { class: "checks" },
        probes.map((probe) =>
          el(
            "li",
            { class: KINDS[probe.state] ?? "unknown", "data-key": probe.name },
            el("span", { class: "mark", "aria-hidden": "true" }, MARKS[probe.state] ?? ""),
            el("b", {}, `${probe.numbers} ${probe.name}`),
            el("span", {}, `${probe.state}: ${probe.about}`, probe.reason ? `. ${sentence(probe.reason)}` : ""),
          ),
        ),
      ),
    ];
  }
}

function isAboutKeys({ status, message }) {
  return status === 401 || (status === 403 && message.includes("API key"));
}
