// Where judge and outcome agree and where not: a table of four counts, each a filter, over all rows that have both.

const CELLS = [
  ["judged good", true, [["success", "agree"], ["failure", "disagree"]]],
  ["judged poor", false, [["success", "disagree"], ["failure", "agree"]]],
];
const WHAT = { agree: "judge and outcome agree", disagree: "judge and outcome disagree" };

function agreementCounts() {
  const counts = { success: { true: 0, false: 0 }, failure: { true: 0, false: 0 } };
  for (let i = 0; i < total; i++) if (agrees(i) !== null) counts[success(i) ? "success" : "failure"][judgedGood(i)]++;
  return counts;
}

/** The table; nothing where no row has an outcome, and a word where scores are relative. */
function agreementView() {
  if (rows.relative) return h("section", { class: "agreement" }, h("p", { class: "muted", id: "relative" }, "These scores are relative: each says which share of the other attempts at its question was placed behind, whether they are good or bad. No border between good and poor says anything of them, so they are not held against outcomes."));
  if (!KNOWN.outcome) return null;
  const cell = (words, [outcome, judged]) =>
    h("td", null, h("button", { type: "button", class: `cell ${judged}`, "data-outcome": outcome, "data-judged": judged, "data-words": words, onclick: () => chooseCell(outcome, judged) }, h("b", { class: "num" }), judged === "disagree" ? icon("differ") : null));
  const from = h("input", { type: "number", id: "from", min: "0", max: "1", step: "0.05", inputmode: "decimal", oninput: () => setFrom(bound($("from")) ?? HALF) });
  return h(
    "section",
    { class: "agreement", "aria-label": "Judge and outcome" },
    h("table", null,
      h("caption", null, h("label", null, "Judged good from ", from)),
      h("thead", null, h("tr", null, h("td"), h("th", { scope: "col" }, "success"), h("th", { scope: "col" }, "failure"))),
      h("tbody", null, ...CELLS.map(([words, , cells]) => h("tr", null, h("th", { scope: "row" }, words), ...cells.map((one) => cell(words, one)))))),
    h("p", { class: "muted", id: "agreed" }),
  );
}

function drawAgreement() {
  if (!$("agreed")) return;
  const counts = agreementCounts();
  for (const button of document.querySelectorAll(".cell")) {
    const { outcome, judged, words } = button.dataset;
    const n = counts[outcome][words === "judged good"];
    button.firstChild.textContent = whole.format(n);
    button.setAttribute("aria-label", `${words}, ${outcome}: ${count(n, "transcript")}; ${WHAT[judged]}`);
    button.setAttribute("aria-pressed", query.outcome === outcome && query.judged === judged);
  }
  const same = counts.success.true + counts.failure.false;
  const all = same + counts.success.false + counts.failure.true;
  $("agreed").textContent = all ? `They agree in ${(100 * same / all).toFixed(1)} % of ${count(all, "transcript")} that have both.` : "No transcript has both a score and an outcome.";
  if (document.activeElement !== $("from")) $("from").value = query.from;
}

/** A click filters by one cell, the same again lifts it. */
function chooseCell(outcome, judged) {
  const same = query.outcome === outcome && query.judged === judged;
  Object.assign(query, same ? { outcome: "any", judged: "any" } : { outcome, judged });
  showFilters();
  refresh();
}

function setFrom(score) {
  query.from = score;
  refresh();
}
