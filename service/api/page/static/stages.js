// Where the time of the mean request goes, as a waterfall; and who is how busy.

import { bar, stack } from "./bars.js";
import { el } from "./dom.js";
import { count, duration, share } from "./format.js";
import { GROUPS, STAGES, STATIONS } from "./titles.js";

/** The stages of the mean request, one under the other, each from where the one before ended. */
export function stages({ window: span }) {
  const names = Object.keys(span.stages_s);
  const total = names.reduce((sum, name) => sum + (span.stages_s[name] ?? 0), 0);
  if (!total)
    return section("Where a request's time goes", el("p", { class: "muted" }, "No answered request in this window."));
  let begun = 0;
  const rows = names.map((name) => {
    const mean = span.stages_s[name] ?? 0;
    const row = stageRow(name, begun / total, mean / total, [
      mean,
      span.stages_p50_s?.[name],
      span.stages_p99_s?.[name],
    ]);
    begun += mean;
    return row;
  });
  return section(
    "Where a request's time goes",
    groups(span.stages_s, total),
    el(
      "div",
      { class: "scroll", tabindex: "0", role: "region", "aria-label": "Stages" },
      el(
        "table",
        { class: "waterfall" },
        el("caption", { class: "hidden" }, "Stages of the mean request, in their order"),
        head(["Stage"], ["From begin to end", "wide"], ["Mean", "n"], ["p50", "n"], ["p99", "n"], ["Share", "n"]),
        el("tbody", {}, rows),
        el(
          "tfoot",
          {},
          el(
            "tr",
            {},
            el("th", { scope: "row" }, "Together"),
            el("td"),
            number(duration(total)),
            el("td"),
            el("td"),
            el("td"),
          ),
        ),
      ),
    ),
  );
}

function stageRow(name, from, length, [mean, p50, p99]) {
  const [title, group, meaning] = STAGES[name] ?? [name, "device", ""];
  return el(
    "tr",
    { "data-key": name },
    el("th", { scope: "row", title: meaning }, title),
    el("td", { class: "wide" }, bar(from, length, group)),
    number(duration(mean)),
    number(duration(p50)),
    number(duration(p99)),
    number(share(length)),
  );
}

function groups(spent, total) {
  const sums = Object.keys(GROUPS).map((group) => [
    Object.keys(spent)
      .filter((name) => (STAGES[name]?.[1] ?? "device") === group)
      .reduce((sum, name) => sum + (spent[name] ?? 0), 0) / total,
    group,
  ]);
  return el(
    "div",
    { class: "groups" },
    stack(sums),
    el(
      "ul",
      { class: "legend" },
      sums.map(([part, group]) => el("li", { class: group }, GROUPS[group], " ", el("b", {}, share(part)))),
    ),
  );
}

/** Every station's load, and what a row costs it. */
export function stations({ stations: all, limiter }) {
  const names = Object.keys(all);
  if (!names.length)
    return section("Who is busy", el("p", { class: "muted" }, "No station was recorded in this window."));
  return section(
    "Who is busy",
    el(
      "div",
      { class: "scroll", tabindex: "0", role: "region", "aria-label": "Stations" },
      el(
        "table",
        {},
        el("caption", { class: "hidden" }, "Stations, their utilisation and their demand per row"),
        head(["Station"], ["Busy", "wide"], ["", "n"], ["Per row", "n"], ["Could do", "n"], ["Load", "n"]),
        el(
          "tbody",
          {},
          names.map((name) => stationRow(name, all[name], name === limiter)),
        ),
      ),
    ),
    el(
      "p",
      { class: "muted" },
      "Busy is the share of the window that the station worked. Load is the present rate over the best it could reach, with full batches.",
    ),
  );
}

function stationRow(name, station, isLimiter) {
  const kind = station.utilisation >= 0.9 ? "hot" : isLimiter ? "first" : "calm";
  return el(
    "tr",
    { "data-key": name, class: station.within ? "within" : isLimiter ? "limiter" : null },
    el("th", { scope: "row" }, STATIONS[name] ?? name, isLimiter ? el("span", { class: "tag" }, "limits first") : null),
    el("td", { class: "wide" }, bar(0, station.utilisation, kind)),
    number(share(station.utilisation)),
    number(duration(station.demand_s)),
    number(`${count(station.capacity_rows_per_s)}/s`),
    number(share(station.load)),
  );
}

/** A part of the page with a title. */
export function section(title, ...content) {
  const id = `about-${title.toLowerCase().replace(/[^a-z]+/g, "-")}`;
  return el("section", { class: "card", "aria-labelledby": id }, el("h2", { id }, title), ...content);
}

/** A table's head; each column a title and, where wanted, a class. */
export function head(...columns) {
  return el(
    "thead",
    {},
    el(
      "tr",
      {},
      columns.map(([title, kind]) =>
        el(title ? "th" : "td", { scope: title ? "col" : null, class: kind ?? null }, title),
      ),
    ),
  );
}

/** A cell of digits. */
export function number(text) {
  return el("td", { class: "n" }, text);
}
