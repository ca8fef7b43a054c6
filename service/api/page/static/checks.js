// Whether the window could be judged at all, check by check.

import { el } from "./dom.js";
import { sentence } from "./headline.js";

const WORDS = {
  true: ["✓", "holds", "passed"],
  false: ["✗", "fails", "failed"],
  null: ["–", "not recorded", "unknown"],
};

/** The checks of validity, folded. */
export function checks({ window: span, id }) {
  const failed = span.checks.filter((check) => check.passed === false).length;
  return el(
    "details",
    { class: "card folded", "data-key": "checks" },
    el(
      "summary",
      {},
      el("h2", {}, "Checks of this window"),
      el("span", { class: `tag ${failed ? "failed" : "passed"}` }, failed ? `${failed} fail` : "none fails"),
      el("span", { class: "muted" }, "Report ", el("code", {}, id)),
    ),
    el(
      "ul",
      { class: "checks" },
      span.checks.map((check) => {
        const [mark, word, kind] = WORDS[String(check.passed)];
        return el(
          "li",
          { class: kind, "data-key": check.name },
          el("span", { class: "mark", "aria-hidden": "true" }, mark),
          el("b", {}, check.name.replaceAll("-", " ")),
          el("span", { class: "hidden" }, `: ${word}`),
          el("span", {}, sentence(check.detail), check.mend ? ` To mend: ${sentence(check.mend)}` : ""),
        );
      }),
    ),
  );
}
