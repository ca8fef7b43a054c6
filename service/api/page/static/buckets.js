// Buckets as a heat map: use, fill, waste and graph hits, a shade for each share.

import { el } from "./dom.js";
import { UNKNOWN, count, duration, share } from "./format.js";
import { head, number, section } from "./stages.js";

const SHADES = 10;

/** The buckets that ran, the smallest first. */
export function buckets({ buckets: all }) {
  if (!all.length) return section("Buckets", el("p", { class: "muted" }, "No batch ran in this window."));
  const rows = all.reduce((sum, bucket) => sum + bucket.rows, 0) || 1;
  const hasGraphs = all.some((bucket) => bucket.replays || bucket.miss_reason);
  return section(
    "Buckets",
    el(
      "div",
      { class: "scroll", tabindex: "0", role: "region", "aria-label": "Buckets" },
      el(
        "table",
        { class: "heat" },
        el(
          "caption",
          { class: "hidden" },
          "Buckets: how much each is used, how full its batches are, what padding wastes",
        ),
        head(
          ["Bucket"],
          ["Use", "n"],
          ["Fill", "n"],
          ["Waste", "n"],
          ...(hasGraphs ? [["Graph", "n"]] : []),
          ["Batches", "n"],
          ["Batch", "n"],
          ["At warm-up", "n"],
        ),
        el(
          "tbody",
          {},
          [...all].sort(bySize).map((bucket) => row(bucket, bucket.rows / rows, hasGraphs)),
        ),
      ),
    ),
    el(
      "p",
      { class: "muted" },
      "Use: share of all rows. Fill: rows over padded rows. Waste: share of what was computed that was padding.",
    ),
  );
}

function row(bucket, use, hasGraphs) {
  return el(
    "tr",
    { "data-key": `${bucket.bucket}/${bucket.profile}` },
    el(
      "th",
      { scope: "row" },
      bucket.bucket,
      bucket.profile === null ? null : el("small", { class: "muted" }, ` profile ${bucket.profile}`),
    ),
    shaded(use, "use"),
    shaded(bucket.fill, "use"),
    shaded(bucket.waste, "waste"),
    hasGraphs ? graph(bucket) : null,
    number(count(bucket.batches)),
    number(duration(bucket.batch_s)),
    number(duration(bucket.cost_s)),
  );
}

function graph({ replays, eager_runs: eager, miss_reason: reason }) {
  const runs = replays + eager;
  const hits = runs ? replays / runs : null;
  const cell = shaded(hits, "use");
  if (reason) {
    cell.title = reason;
    cell.append(el("small", {}, reason));
  }
  return cell;
}

function shaded(value, kind) {
  const shade = value === null ? null : Math.round(Math.min(1, Math.max(0, value)) * SHADES);
  return el(
    "td",
    { class: `n ${kind} ${shade === null ? "unknown" : `shade-${shade}`}` },
    value === null ? UNKNOWN : share(value),
  );
}

function bySize(one, other) {
  return one.bucket.localeCompare(other.bucket, "en", { numeric: true });
}
