// Bars drawn as SVG by attributes alone, which need no inline style.

import { el } from "./dom.js";

const clamp = (value) => Math.min(1, Math.max(0, value));
const percent = (value) => `${(value * 100).toFixed(2)}%`;
const VISIBLE = 0.006;

/** A bar from `from` to `from + length`, shares of the track; never thinner than can be seen unless it is nothing. */
export function bar(from, length, kind) {
  const drawn = length > 0 ? Math.max(VISIBLE, clamp(length)) : 0;
  return el(
    "svg",
    { class: `track ${kind}`, height: "12", "aria-hidden": "true" },
    el("rect", { class: "rail", width: "100%", height: "100%", rx: "3" }),
    drawn > 0
      ? el("rect", {
          class: "fill",
          x: percent(Math.min(clamp(from), 1 - drawn)),
          width: percent(drawn),
          height: "100%",
          rx: "3",
        })
      : null,
  );
}

/** Several lengths in one bar, each `[share, kind]`. */
export function stack(parts) {
  let at = 0;
  const rects = parts.map(([length, kind]) => {
    const rect = el("rect", {
      class: `fill ${kind}`,
      x: percent(clamp(at)),
      width: percent(clamp(length)),
      height: "100%",
    });
    at += length;
    return rect;
  });
  return el("svg", { class: "track stack", height: "18", "aria-hidden": "true" }, rects);
}
