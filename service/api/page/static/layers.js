// The layers of a bucket as a table that sorts by any column, and under their roof.

import { bar } from "./bars.js";
import { chartsOffered } from "./charts.js";
import { el } from "./dom.js";
import { UNKNOWN, count, duration, scaled, share } from "./format.js";
import { number, section } from "./stages.js";

const FIRST_SHOWN = 12;

const rate = (amount, layer) => (amount === null || !layer.time_s ? null : amount / layer.time_s);

/** Title, value to sort by, cell. Texts ascend at first, numbers descend. */
const COLUMNS = {
  name: ["Layer", (layer) => layer.name, nameCell],
  time: ["Time", (layer) => layer.time_s, (layer) => number(duration(layer.time_s))],
  share: ["Share", (layer) => layer.share, shareCell],
  class: [
    "Bound by",
    (layer) => layer.class,
    (layer) => el("td", {}, el("span", { class: `tag class-${layer.class.replace(" ", "-")}` }, layer.class)),
  ],
  efficiency: [
    "Of the roof",
    (layer) => layer.efficiency,
    (layer) => number(share(layer.efficiency) + (layer.cache_resident ? " (cache)" : "")),
  ],
  intensity: ["FLOPs/byte", (layer) => layer.intensity, (layer) => number(count(layer.intensity))],
  flops: ["FLOP/s", (layer) => rate(layer.flops, layer), (layer) => number(scaled(rate(layer.flops, layer), ""))],
  bytes: ["B/s", (layer) => rate(layer.bytes, layer), (layer) => number(scaled(rate(layer.bytes, layer), ""))],
  dtype: ["Type", (layer) => layer.dtype, (layer) => el("td", {}, layer.dtype || UNKNOWN)],
  tactic: [
    "Tactic",
    (layer) => layer.tactic,
    (layer) => el("td", { class: "long", title: layer.tactic }, layer.tactic || UNKNOWN),
  ],
};
const TEXTS = new Set(["name", "class", "dtype", "tactic"]);

/** What the reader chose: which bucket, which order, how much of it. */
export class LayersView {
  bucket = null;
  column = "time";
  isAscending = false;
  isWhole = false;

  /** Sorts by a column; once more by the same turns the order round. */
  sortBy(column) {
    this.isAscending = column === this.column ? !this.isAscending : TEXTS.has(column);
    this.column = column;
  }

  /** The bucket to show of those that were profiled; null if none was. */
  chosen(tables) {
    return tables.find((table) => table.bucket === this.bucket) ?? tables[0] ?? null;
  }

  /** The part of the page, without its chart, which is drawn into `#roofline`. */
  render(document_) {
    const table = this.chosen(document_.layers);
    if (!table) return section("Layers", el("p", { class: "muted" }, "No layer was timed yet; a probe does that."));
    return section(
      "Layers",
      el(
        "div",
        { class: "choices", role: "group", "aria-label": "Bucket" },
        document_.layers.map((one) =>
          el(
            "button",
            {
              type: "button",
              class: "quiet",
              "data-action": "bucket",
              "data-bucket": one.bucket,
              "aria-pressed": String(one === table),
            },
            `bucket ${one.bucket}`,
          ),
        ),
      ),
      el(
        "p",
        { class: "muted" },
        `${table.layers.length} layers in ${duration(table.span_s)}; what bounds them is known of ${share(table.coverage)} of the time, ${share(table.reformat_share)} only changes type or layout.`,
      ),
      chartsOffered ? null : withoutChart(document_.peaks),
      this.#table(table),
    );
  }

  #table(table) {
    const [, value] = COLUMNS[this.column];
    const sorted = [...table.layers].sort((one, other) => compare(value(one), value(other), this.isAscending));
    const shown = this.isWhole ? sorted : sorted.slice(0, FIRST_SHOWN);
    return [
      el(
        "div",
        { class: "scroll", tabindex: "0", role: "region", "aria-label": "Layers" },
        el(
          "table",
          { class: "layers" },
          el("caption", { class: "hidden" }, "Layers; the buttons in the head sort"),
          el(
            "thead",
            {},
            el(
              "tr",
              {},
              Object.entries(COLUMNS).map(([name, [title]]) => this.#heading(name, title)),
            ),
          ),
          el(
            "tbody",
            {},
            shown.map((layer) =>
              el(
                "tr",
                {},
                Object.values(COLUMNS).map(([, , cell]) => cell(layer)),
              ),
            ),
          ),
        ),
      ),
      sorted.length > FIRST_SHOWN
        ? el(
            "button",
            { type: "button", class: "quiet", "data-action": "whole" },
            this.isWhole ? `Show ${FIRST_SHOWN} layers` : `Show all ${sorted.length} layers`,
          )
        : null,
    ];
  }

  #heading(name, title) {
    const isSorted = name === this.column;
    const order = isSorted ? (this.isAscending ? "ascending" : "descending") : null;
    return el(
      "th",
      { scope: "col", "aria-sort": order, class: TEXTS.has(name) ? null : "n" },
      el(
        "button",
        { type: "button", class: "sorter", "data-action": "sort", "data-column": name },
        title,
        el("span", { "aria-hidden": "true" }, isSorted ? (this.isAscending ? "▲" : "▼") : ""),
      ),
    );
  }
}

function nameCell(layer) {
  return el(
    "th",
    {
      scope: "row",
      class: "long",
      title: layer.origin.length ? `${layer.name}, from ${layer.origin.join(", ")}` : layer.name,
    },
    layer.name,
    el(
      "small",
      {},
      layer.kind,
      layer.reformat ? " · reformat" : "",
      layer.tensor_core === false ? " · no tensor cores" : "",
    ),
  );
}

function shareCell(layer) {
  return el("td", { class: "n" }, el("div", { class: "with-bar" }, bar(0, layer.share, "device"), share(layer.share)));
}

function withoutChart(peaks) {
  return el(
    "p",
    { class: "muted" },
    peaks
      ? `At best this device was seen to move ${scaled(peaks.bytes_per_s, "B/s")} and to compute ${Object.entries(
          peaks.flops_per_s,
        )
          .map(([dtype, best]) => `${scaled(best, "FLOP/s")} of ${dtype}`)
          .join(", ")}. `
      : "",
    "The roofline chart needs the server's extra ",
    el("code", {}, "dashboard"),
    ".",
  );
}

function compare(one, other, isAscending) {
  if (one === null || other === null) return (one === null) - (other === null);
  const order = typeof one === "string" ? one.localeCompare(other, "en", { numeric: true }) : one - other;
  return isAscending ? order : -order;
}
