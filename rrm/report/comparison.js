// Two judges on the same transcripts: the figures that were made with the page (rrm.report.comparison).

const figure3 = (value) => (value === null || value === undefined ? "–" : value.toFixed(3));
const bounds = ({ low, high }) => (low === null ? "too few for an interval" : `[${figure3(low)}, ${figure3(high)}]`);
const withBounds = (one) => `${figure3(one.value)} ${bounds(one)}`;

/** What a difference B − A says, in words: nothing, unless its interval leaves out 0. */
function saysOf({ low, high }, lowIsBest) {
  if (low === null) return "too few to say";
  if (low <= 0 && high >= 0) return "within noise";
  return (low > 0) === !lowIsBest ? "B is better" : "A is better";
}

const HEAD = ["Figure", "A", "B", "B − A", ""];

function comparisonView() {
  const found = rows.comparison;
  if (!found) return null;
  const fact = (label, value) => h("div", null, h("dt", null, label), h("dd", null, value));
  const { outcomes, steps } = found;
  const relative = ["A", "B"].filter((_, k) => found.relative[k]).join(" and ");
  const facts = found.both
    ? [
        fact("Scored by both", whole.format(found.both)),
        ...(relative
          ? []
          : [fact("Mean of B − A", withBounds(found.difference)), fact("Same side of 0.5", withBounds(found.same_side)), fact("Rank correlation", figure3(found.spearman))]),
        steps.both ? fact("Same verdict on a step", `${(100 * steps.same / steps.both).toFixed(1)} % of ${whole.format(steps.both)}`) : null,
      ]
    : [fact("Scored by both", "none")];
  const alone = [["A", found.only_first], ["B", found.only_second]].filter(([, n]) => n).map(([who, n]) => `${whole.format(n)} only by ${who}`);
  const line = (one) => h("tr", null, h("th", { scope: "row" }, one.name), ...[one.first, one.second, one.difference].map((value, k) => h("td", { class: "num", "data-name": HEAD[k + 1] }, withBounds(value))), h("td", null, saysOf(one.difference, one.name.startsWith("Brier"))));
  const table = outcomes?.lines.length
    ? h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Against outcomes" }, h("table", { "aria-describedby": "compared" },
        h("thead", null, h("tr", null, ...HEAD.map((name) => h("th", { scope: "col" }, name)))), h("tbody", null, ...outcomes.lines.map(line))))
    : null;
  return h("details", { class: "comparison", open: true },
    h("summary", null, h("h2", null, "Two judges")),
    h("p", null, "A: ", h("b", null, found.names[0]), h("br"), "B: ", h("b", null, found.names[1] || "(no rows)")),
    h("dl", { class: "facts" }, ...facts), alone.length ? h("p", { class: "muted" }, `Scored ${alone.join(", ")}.`) : null,
    relative ? h("p", { class: "muted", id: "relative-judges" }, `The scores of ${relative} are relative to the other attempts at a question, so the two are compared within questions alone.`) : h("p", null, h("button", { type: "button", class: "link", "data-gap": "", onclick: () => { Object.assign(query, { sort: "gap", descending: true }); showSort(); refresh(); } }, "Sort by how far they are apart")),
    table ? h("p", { class: "muted", id: "compared" }, `Against outcomes: ${count(outcomes.rows, "transcript")} of ${count(outcomes.questions, "question")}; 95 % intervals over questions, the difference paired.`) : null, table);
}
