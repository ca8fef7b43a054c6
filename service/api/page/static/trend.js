// How rates and latencies went since the page was opened: what a single window cannot tell.

import { axis, chartsOffered, colour, draw } from "./charts.js";
import { el } from "./dom.js";
import { section } from "./stages.js";

const MOST_POINTS = 900;
const SHORTEST_SPAN_MS = 20_000;

/** The points of one model and window. */
export class Trend {
  #points = [];
  #of = "";

  /** Adds what a document tells; another model or window begins anew. */
  add(document_, of) {
    if (of !== this.#of) this.#points = [];
    this.#of = of;
    const { window: span } = document_;
    this.#points.push({
      at: new Date(),
      rate: span.rows_per_s,
      offered: span.offered_rows_per_s,
      p50_ms: inMs(span.latency_p50_s),
      p99_ms: inMs(span.latency_p99_s),
    });
    if (this.#points.length > MOST_POINTS) this.#points.shift();
  }

  /** Brings the chart up to date. */
  async draw(place) {
    const line = (name, key, tone, yaxis, dash = "solid") => ({
      type: "scatter",
      mode: this.#points.length > 1 ? "lines" : "markers",
      name,
      x: this.#points.map((point) => point.at),
      y: this.#points.map((point) => point[key]),
      line: { color: colour(tone), width: 2, dash },
      yaxis,
    });
    const last = this.#points.at(-1).at.getTime();
    const first = Math.min(this.#points[0].at.getTime(), last - SHORTEST_SPAN_MS);
    await draw(
      place,
      [
        line("answered rows/s", "rate", "device", "y2"),
        line("offered rows/s", "offered", "muted", "y2", "dot"),
        line("p50 ms", "p50_ms", "intake", "y"),
        line("p99 ms", "p99_ms", "waiting", "y"),
      ],
      {
        height: 320,
        xaxis: axis({ type: "date", tickformat: "%H:%M:%S", nticks: 6, range: [new Date(first), new Date(last)] }),
        yaxis: axis({ domain: [0, 0.45], rangemode: "tozero", title: { text: "ms" } }),
        yaxis2: axis({ domain: [0.55, 1], rangemode: "tozero", title: { text: "rows/s" } }),
        hovermode: "x unified",
      },
    );
  }
}

/** The place of the chart, laid out once. */
export function trendSection() {
  return section(
    "Since this page was opened",
    chartsOffered
      ? el("div", { id: "trend-chart", class: "chart", role: "img", "aria-label": "Rates and latencies over time" })
      : el(
          "p",
          { class: "muted" },
          "Charts need the server's extra ",
          el("code", {}, "dashboard"),
          ": ",
          el("code", {}, "pip install 'inferlane[dashboard]'"),
          ", and a restart.",
        ),
  );
}

function inMs(seconds) {
  return seconds === null ? null : seconds * 1e3;
}
