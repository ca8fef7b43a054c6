// The page of the whole server: every model, its state, its load, and what limits it.

import { el, show } from "./dom.js";
import { UNKNOWN, count, duration, share } from "./format.js";
import { control, layOut, refusal, serveActions, showPulse } from "./frame.js";
import { badge, sentence, verdictOf } from "./headline.js";
import { Poll, Refused, ask } from "./server.js";
import { bar } from "./bars.js";
import { STATIONS } from "./titles.js";

const EVERY_MS = 2000;
const WINDOW_S = 30;
const MARKS = { READY: "healthy", LOADING: "unjudged", UNLOADING: "unjudged", UNAVAILABLE: "limited" };

const slots = layOut(document.getElementById("main"), ["trouble", "top", "models", "links"]);
const documents = new Map();
const composed = new Set(); // ready, and yet unknown to the diagnosis: it asks about those that have batches
const poll = new Poll(refresh, EVERY_MS);

async function refresh() {
  try {
    const index = await ask("./?format=json");
    const hasDiagnosis = Object.values(index.links).includes("/diagnose");
    if (hasDiagnosis) await diagnoseAll(index.models.filter((model) => model.state === "READY"));
    render(index, hasDiagnosis);
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    show(slots.trouble, refusal(error));
    return false;
  }
  showPulse(poll.isPaused ? "paused" : "live", poll.isPaused ? "Paused" : "Live");
  show(slots.trouble);
  return true;
}

/** One model after the other, so that the page never asks for more than one diagnosis at once. */
async function diagnoseAll(models) {
  const names = new Set(models.map((model) => model.name));
  for (const known of [documents, composed]) {
    for (const name of known.keys()) if (!names.has(name)) known.delete(name);
  }
  for (const name of names) {
    if (composed.has(name)) continue;
    try {
      documents.set(name, await ask(`diagnose?${new URLSearchParams({ model: name, window: WINDOW_S })}`));
    } catch (error) {
      if (![404, 503].includes(error.status)) throw error;
      if (error.status === 404) composed.add(name);
      documents.delete(name);
    }
  }
}

function render(index, hasDiagnosis) {
  show(slots.top, top(index));
  show(
    slots.models,
    index.models.length
      ? el(
          "ul",
          { class: "models" },
          index.models.map((model) => card(model, documents.get(model.name), hasDiagnosis)),
        )
      : el(
          "p",
          { class: "card muted" },
          "The repository holds no model. Put a folder with a model.onnx there, and load it.",
        ),
  );
  show(slots.links, links(index));
}

function top(index) {
  const ready = index.models.filter((model) => model.state === "READY").length;
  const rates = [...documents.values()].map((one) => one.window.rows_per_s);
  const limited = [...documents.values()].filter((one) => verdictOf(one).state === "limited").length;
  return el(
    "section",
    {
      class: `card hero ${index.is_ready ? "healthy" : "unjudged"}`,
      "aria-labelledby": "headline",
    },
    el(
      "p",
      { class: "about" },
      badge({ state: index.is_ready ? "healthy" : "unjudged", label: index.is_ready ? "Ready" : "Not ready" }),
      el("span", {}, `${index.name} ${index.version}`),
    ),
    el(
      "h1",
      { id: "headline" },
      `${ready} of ${index.models.length} ${index.models.length === 1 ? "model serves" : "models serve"}`,
    ),
    el(
      "p",
      { class: "lead" },
      documents.size
        ? `${count(rates.reduce((sum, rate) => sum + rate, 0))} rows/s in all over the last ${WINDOW_S} s; ${limited ? `${limited} limited` : "none found limited"}.`
        : "No figures of the load.",
    ),
  );
}

function card(model, document_, hasDiagnosis) {
  const isReady = model.state === "READY";
  const isTold = isReady && document_ !== undefined;
  const link = `diagnose?${new URLSearchParams({ model: model.name })}`;
  const isIdle = isTold && document_.window.requests === 0;
  return el(
    "li",
    { class: "card model", "data-key": `${model.name}/${model.version}` },
    el(
      "header",
      {},
      el(
        "h2",
        {},
        isReady && hasDiagnosis && !composed.has(model.name) ? el("a", { href: link }, model.name) : model.name,
      ),
      el("span", { class: "muted" }, `version ${model.version}`),
      mark(model, document_, isIdle),
    ),
    isTold && !isIdle ? figures(document_) : null,
    el("p", { class: "verdict" }, words(model, document_, isIdle)),
  );
}

function mark(model, document_, isIdle) {
  if (model.state !== "READY")
    return badge({ state: MARKS[model.state] ?? "undecided", label: model.state.toLowerCase() });
  if (isIdle || document_ === undefined) return badge({ state: "idle", label: isIdle ? "Idle" : "Ready" });
  return badge(verdictOf(document_));
}

function words(model, document_, isIdle) {
  if (model.state !== "READY") return sentence(model.reason || model.state.toLowerCase());
  if (document_ === undefined)
    return composed.has(model.name) ? "Made of other models here: look at those." : "No figures yet.";
  if (isIdle) return `No request in the last ${Math.round(document_.window.duration_s)} s.`;
  const verdict = verdictOf(document_);
  return verdict.finding
    ? [el("b", {}, `${verdict.title}. `), sentence(verdict.finding.summary)]
    : sentence(document_.window.headline);
}

function figures({ window: span, limiter, stations }) {
  const station = limiter ? stations[limiter] : null;
  return el(
    "dl",
    { class: "small-figures" },
    pair("Requests/s", span.duration_s ? count(span.requests / span.duration_s) : UNKNOWN),
    pair("p50", duration(span.latency_p50_s)),
    pair("p99", duration(span.latency_p99_s)),
    pair("Limits first", limiter ? (STATIONS[limiter] ?? limiter) : UNKNOWN),
    el(
      "div",
      { class: "load" },
      el("dt", {}, "Its load"),
      el(
        "dd",
        {},
        station ? [bar(0, station.load, station.load >= 0.9 ? "hot" : "calm"), share(station.load)] : UNKNOWN,
      ),
    ),
  );
}

function pair(name, value) {
  return el("div", {}, el("dt", {}, name), el("dd", {}, value));
}

function links(index) {
  return el(
    "section",
    { class: "card", "aria-labelledby": "about-links" },
    el("h2", { id: "about-links" }, "Elsewhere on this server"),
    el(
      "ul",
      { class: "links" },
      Object.entries(index.links)
        .filter(([title]) => !title.includes("(POST)"))
        .map(([title, path]) => el("li", {}, el("a", { href: path.replace(/^\/(?!\/)/, "") }, title))),
      el("li", {}, el("a", { href: "?format=json" }, "This page as JSON")),
    ),
  );
}

serveActions(document.getElementById("main"), poll);
control(poll, "dashboard");
poll.now();
