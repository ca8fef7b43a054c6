// The diagnosis in a sentence, and the load in a row of numbers.

import { el } from "./dom.js";
import { UNKNOWN, count, duration, gainText, share } from "./format.js";
import { CLASSES, STATIONS } from "./titles.js";

/** What became of the window: one of healthy, limited, unjudged and undecided, with the words for it. */
export function verdictOf(document_) {
  const { window: span } = document_;
  const first = document_.findings.find((finding) => finding.verdict === "confirmed");
  if (!span.valid) return { state: "unjudged", label: "Cannot judge yet", title: "This window tells too little" };
  if (document_.healthy) return { state: "healthy", label: "Healthy", title: "Nothing holds this model back" };
  if (!first)
    return { state: "undecided", label: "Undecided", title: "Too little was recorded to rule bottlenecks out" };
  return { state: "limited", label: "Limited", title: CLASSES[first.class] ?? first.class, finding: first };
}

/** The sign for a state: a word beside a mark, because colours alone tell not everybody. */
export function badge({ state, label }) {
  const marks = { healthy: "✓", limited: "!", unjudged: "…", undecided: "?" };
  return el("span", { class: `badge ${state}` }, el("span", { "aria-hidden": "true" }, marks[state]), label);
}

/** The top of the page. */
export function headline(document_) {
  const { model, window: span } = document_;
  const verdict = verdictOf(document_);
  const { finding } = verdict;
  return [
    el(
      "section",
      { class: `card hero ${verdict.state}`, "aria-labelledby": "headline" },
      el(
        "p",
        { class: "about" },
        badge(verdict),
        el("span", {}, `${model.name} · version ${model.version} · ${model.backend} · ${model.task}`),
      ),
      el("h1", { id: "headline" }, verdict.title),
      el("p", { class: "lead" }, finding ? sentence(finding.summary) : sentence(span.headline)),
      finding?.gain
        ? el("p", { class: "hint" }, el("strong", {}, gainText(finding.gain)), " expected of the fix below")
        : null,
    ),
    el("dl", { class: "figures", "aria-label": "Load" }, figures(document_)),
  ];
}

function figures({ window: span, limiter, stations }) {
  const offered = span.offered_rows_per_s;
  const knee = span.in_flight_knee;
  const load = limiter ? stations[limiter]?.load : null;
  return [
    figure("Throughput", `${count(span.rows_per_s)} rows/s`, offered === null ? "" : `${count(offered)} offered`),
    figure("Latency, median", duration(span.latency_p50_s), `mean ${duration(span.latency_mean_s)}`),
    figure("Latency, p99", duration(span.latency_p99_s), tail(span)),
    figure("In flight", count(span.in_flight), knee === null ? "" : `${count(knee)} would fill the server`),
    figure(
      "Limits first",
      limiter ? (STATIONS[limiter] ?? limiter) : UNKNOWN,
      load === null ? "" : `${share(load)} loaded`,
    ),
    figure("Window", duration(span.duration_s), `${count(span.requests)} requests`),
  ];
}

function tail({ latency_p50_s: median, latency_p99_s: p99 }) {
  return median && p99 ? `${(p99 / median).toFixed(1)} × the median` : "";
}

function figure(name, value, beside) {
  return el("div", {}, el("dt", {}, name), el("dd", {}, value, beside ? el("small", {}, beside) : null));
}

/** A text of the document as a sentence of its own. */
export function sentence(text) {
  return text ? text[0].toUpperCase() + text.slice(1) + (/[.!?]$/.test(text) ? "" : ".") : "";
}
