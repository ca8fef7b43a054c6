// The findings in their order: the confirmed ones with evidence, gain, fix and check, the others folded.

import { el } from "./dom.js";
import { gainText, metricName, quantity, share } from "./format.js";
import { snippet } from "./frame.js";
import { sentence } from "./headline.js";
import { head, number, section } from "./stages.js";
import { CLASSES } from "./titles.js";

const FOLDED = [
  ["unverified", "Not decided", "What would decide is missing."],
  ["refuted", "Ruled out", "The evidence speaks against these, or they cost too little to matter."],
];

/** Everything that was looked for. */
export function findings({ findings: all }) {
  const confirmed = all.filter((finding) => finding.verdict === "confirmed");
  return [
    confirmed.length ? section("What holds it back", el("ol", { class: "findings" }, confirmed.map(card))) : null,
    ...FOLDED.map(([verdict, title, meaning]) =>
      folded(
        all.filter((finding) => finding.verdict === verdict),
        verdict,
        title,
        meaning,
      ),
    ),
  ];
}

function card(finding, index) {
  return el(
    "li",
    { class: "finding", "data-key": finding.class },
    el(
      "header",
      {},
      el("span", { class: "rank", "aria-hidden": "true" }, String(index + 1)),
      el("h3", {}, CLASSES[finding.class] ?? finding.class, el("code", { class: "id" }, finding.class)),
      finding.gain ? gainMark(finding.gain) : null,
    ),
    index ? el("p", {}, sentence(finding.summary)) : null, // of the first it is the page's headline
    el("div", { class: "sides" }, fixOf(finding), evidenceOf(finding)),
    finding.note ? el("p", { class: "note" }, el("b", {}, "Often believed otherwise. "), sentence(finding.note)) : null,
  );
}

function gainMark(gain) {
  return el(
    "p",
    { class: "gain" },
    el("strong", {}, gainText(gain)),
    el("span", {}, `${share(gain.low)} to ${share(gain.high)}`),
    el("span", { class: `tag ${gain.label.replace(" ", "-")}` }, gain.label),
  );
}

function fixOf({ fix, verify }) {
  if (!fix) return null;
  return el(
    "div",
    { class: "fix" },
    el("h4", {}, "The fix"),
    el("p", {}, sentence(fix.text)),
    fix.card ? snippet("model.toml", fix.card) : null,
    fix.command ? snippet("command", fix.command) : null,
    verify ? [el("h4", {}, "Then check"), el("p", { class: "verify" }, sentence(verify))] : null,
    el("button", { type: "button", "data-action": "hold" }, "Review a change against now"),
  );
}

function evidenceOf({ evidence }) {
  if (!evidence.length) return null;
  return el(
    "div",
    { class: "evidence" },
    el("h4", {}, "The evidence"),
    el(
      "table",
      {},
      head(["Seen"], ["Value", "n"], ["Held against", "n"]),
      el(
        "tbody",
        {},
        evidence.map((one) =>
          el(
            "tr",
            {},
            el("th", { scope: "row" }, one.name),
            number(quantity(one.value, one.unit)),
            number(one.threshold === null ? "" : quantity(one.threshold, one.unit)),
          ),
        ),
      ),
    ),
  );
}

function folded(found, verdict, title, meaning) {
  if (!found.length) return null;
  return el(
    "details",
    { class: `card folded ${verdict}`, "data-key": verdict },
    el(
      "summary",
      {},
      el("h2", {}, title),
      el("span", { class: "tag" }, String(found.length)),
      el("span", { class: "muted" }, meaning),
    ),
    el(
      "ul",
      {},
      found.map((finding) =>
        el(
          "li",
          { "data-key": finding.class },
          el("h3", {}, CLASSES[finding.class] ?? finding.class, el("code", { class: "id" }, finding.class)),
          el("p", {}, sentence(finding.summary)),
          finding.missing.length
            ? el(
                "p",
                { class: "missing" },
                "Would decide: ",
                finding.missing.map(({ what, probe }) => `${what} (${probe})`).join("; "),
              )
            : null,
          evidenceOf(finding),
          finding.note ? el("p", { class: "note" }, sentence(finding.note)) : null,
        ),
      ),
    ),
  );
}

/** A change held against what was predicted of it. */
export function review(document_) {
  const { outcomes, since, load_change: change } = document_;
  return el(
    "section",
    { class: "card review", "aria-labelledby": "about-review" },
    el("h2", { id: "about-review" }, "Since report ", el("code", {}, since)),
    el("p", {}, `The load changed by ${share(change)}. `, outcomes.length ? "" : "That report predicted nothing."),
    outcomes.length
      ? el(
          "table",
          {},
          head(["What was found"], ["Now"], ["Predicted", "n"], ["Achieved", "n"], ["Prediction"]),
          el(
            "tbody",
            {},
            outcomes.map((outcome) =>
              el(
                "tr",
                {},
                el("th", { scope: "row" }, CLASSES[outcome.class] ?? outcome.class),
                el("td", {}, outcome.verdict),
                number(`${share(outcome.predicted.value)} ${metricName(outcome.predicted.metric)}`),
                number(share(outcome.achieved)),
                el("td", {}, { true: "held", false: "did not hold" }[outcome.held] ?? "cannot be told"),
              ),
            ),
          ),
        )
      : null,
    el("button", { type: "button", class: "quiet", "data-action": "release" }, "End the review"),
  );
}
