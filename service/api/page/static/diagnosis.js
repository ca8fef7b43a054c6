// The page of one model: asks for its diagnosis again and again, and brings every part up to date.

import { buckets } from "./buckets.js";
import { chartsOffered } from "./charts.js";
import { checks } from "./checks.js";
import { el, show } from "./dom.js";
import { findings, review } from "./findings.js";
import { control, layOut, refusal, serveActions, showPulse } from "./frame.js";
import { headline } from "./headline.js";
import { LayersView } from "./layers.js";
import { ProbesView } from "./probes.js";
import { drawRoofline } from "./roofline.js";
import { Poll, Refused, ask } from "./server.js";
import { stages, stations } from "./stages.js";
import { Trend, trendSection } from "./trend.js";

const EVERY_MS = 2000;
const INDEX_EVERY = 8;
const REVIEW_EVERY = 3;
const WINDOWS_S = [10, 30, 60, 300, 600];
const DEFAULT_WINDOW_S = 60;

const asked = new URLSearchParams(location.search);
const choice = {
  model: asked.get("model"),
  window_s: Number(asked.get("window")) || DEFAULT_WINDOW_S,
  since: asked.get("since"),
};
const slots = layOut(document.getElementById("main"), [
  "choosers",
  "trouble",
  "top",
  "review",
  "found",
  "times",
  "trend",
  "roof",
  "layers",
  "probes",
  "checks",
]);
const layersView = new LayersView();
const trend = new Trend();
let latest = null;
let asking = 0;

const poll = new Poll(refresh, EVERY_MS);
const probes = new ProbesView(slots.probes, () => poll.once());

async function refresh() {
  const turn = asking;
  try {
    if (turn % INDEX_EVERY === 0) await refreshIndex();
    const query = new URLSearchParams({ window: choice.window_s });
    if (choice.model !== null) query.set("model", choice.model);
    latest = await ask(`diagnose?${query}`);
    asking += 1;
    if (choice.since && turn % REVIEW_EVERY === 0) await refreshReview();
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    show(slots.trouble, refusal(error));
    return false;
  }
  showPulse(poll.isPaused ? "paused" : "live", poll.isPaused ? "Paused" : "Live");
  document.title = `${latest.model.name} · Inferlane`;
  show(slots.trouble);
  trend.add(latest, `${latest.model.name}/${choice.window_s}`);
  render();
  return true;
}

async function refreshIndex() {
  const index = await ask("./?format=json");
  const names = index.models.filter((model) => model.state === "READY").map((model) => model.name);
  if (choice.model !== null && !names.includes(choice.model)) names.push(choice.model);
  show(slots.choosers, choosers(names));
  probes.offer(Object.values(index.links).includes("/diagnose/probes"));
}

async function refreshReview() {
  try {
    show(
      slots.review,
      review(await ask(`diagnose?${new URLSearchParams({ since: choice.since, window: choice.window_s })}`)),
    );
  } catch (error) {
    show(
      slots.review,
      el(
        "section",
        { class: "card review" },
        el("p", {}, error.message),
        el("button", { type: "button", class: "quiet", "data-action": "release" }, "End the review"),
      ),
    );
  }
}

function choosers(names) {
  const windows = [...new Set([...WINDOWS_S, choice.window_s])].sort((one, other) => one - other);
  return el(
    "form",
    { class: "choosers", "aria-label": "What to look at" },
    chooser(
      "model",
      "Model",
      el("option", { value: "", selected: choice.model === null }, "the busiest"),
      [...new Set(names)].sort().map((name) => el("option", { value: name, selected: name === choice.model }, name)),
    ),
    chooser(
      "window",
      "Looking back",
      windows.map((seconds) =>
        el(
          "option",
          { value: String(seconds), selected: seconds === choice.window_s },
          seconds < 120 ? `${seconds} s` : `${seconds / 60} min`,
        ),
      ),
    ),
    el("a", { id: "as-json", href: address("json") }, "JSON"),
    el("a", { id: "as-text", href: address("text") }, "Text"),
  );
}

function chooser(id, label, ...options) {
  return el("div", {}, el("label", { for: id }, label), el("select", { id }, ...options));
}

function address(format) {
  const query = new URLSearchParams({ window: choice.window_s, format });
  if (choice.model !== null) query.set("model", choice.model);
  return `diagnose?${query}`;
}

function render() {
  show(slots.top, headline(latest));
  show(slots.found, findings(latest));
  show(slots.times, stages(latest), el("div", { class: "column" }, stations(latest), buckets(latest)));
  show(slots.checks, checks(latest));
  probes.render(latest.model.name);
  renderLayers();
  drawTrend();
}

function renderLayers() {
  show(slots.layers, layersView.render(latest));
  const table = layersView.chosen(latest.layers);
  const hasRoof = chartsOffered && table !== null && table.layers.some((layer) => layer.intensity > 0);
  if (!hasRoof) {
    slots.roof.replaceChildren();
    return;
  }
  if (!document.getElementById("roofline")) {
    const chart = el("div", {
      id: "roofline",
      class: "chart",
      role: "img",
      "aria-label": "Roofline: each layer's rate over its arithmetic intensity; the same figures are in the table",
    });
    slots.roof.replaceChildren(
      el(
        "section",
        { class: "card", "aria-labelledby": "about-roof" },
        el("h2", { id: "about-roof" }, "Layers under the roof"),
        chart,
      ),
    );
  }
  drawn(drawRoofline(document.getElementById("roofline"), table, latest.peaks));
}

function drawTrend() {
  if (!slots.trend.firstChild) slots.trend.replaceChildren(trendSection());
  if (chartsOffered) drawn(trend.draw(document.getElementById("trend-chart")));
}

function drawn(drawing) {
  drawing.catch((error) => show(slots.trouble, el("p", { class: "card muted" }, error.message)));
}

function keepChoice() {
  const query = new URLSearchParams();
  if (choice.model !== null) query.set("model", choice.model);
  if (choice.window_s !== DEFAULT_WINDOW_S) query.set("window", choice.window_s);
  if (choice.since) query.set("since", choice.since);
  history.replaceState(null, "", `${location.pathname}${query.size ? `?${query}` : ""}`);
}

function chooseAgain() {
  keepChoice();
  asking = 0;
  poll.once();
}

slots.choosers.addEventListener("change", () => {
  choice.model = document.getElementById("model").value || null;
  choice.window_s = Number(document.getElementById("window").value);
  chooseAgain();
});

serveActions(document.getElementById("main"), poll, {
  sort: (button) => {
    layersView.sortBy(button.dataset.column);
    renderLayers();
  },
  whole: () => {
    layersView.isWhole = !layersView.isWhole;
    renderLayers();
  },
  bucket: (button) => {
    layersView.bucket = button.dataset.bucket;
    renderLayers();
  },
  hold: () => {
    choice.since = latest.id;
    choice.model = latest.model.name;
    chooseAgain();
    slots.review.scrollIntoView();
  },
  release: () => {
    choice.since = null;
    show(slots.review);
    chooseAgain();
  },
  probe: (button) => probes.begin(button.dataset.mode),
  cancel: () => probes.cancel(),
});
addEventListener("themechange", () => {
  if (latest) render();
});
control(poll, "diagnosis");
poll.now();
