// One transcript: what was asked, what the judge said, and the steps with the findings beside them.

/** The judge's text, its `[step k]` anchors made into links to the steps that exist. */
function anchored(text, steps) {
  const body = h("div", { class: "text prose" });
  for (const [k, piece] of text.split(/\[step (\d{1,6})\]/).entries()) {
    if (k % 2 === 0) body.append(piece);
    else if (piece >= 1 && piece <= steps) body.append(h("button", { type: "button", class: "link", onclick: () => showStep(Number(piece)) }, `step ${piece}`));
    else body.append(`[step ${piece}]`);
  }
  return body;
}

const field = (label, value) => (value === null || value === undefined || value === "" ? null : h("div", null, h("dt", null, label), h("dd", null, value)));

function sourceText({ file, line, format }) {
  return `${file}${line ? `:${line}` : ""}${format ? ` (${format})` : ""}`;
}

function facts(row, d) {
  const outcome = rows.outcome[row] === null ? null : `${outcomeText(rows.outcome[row])} (not shown to the judge)${agrees(row) === false ? `; ${WHAT.disagree}` : ""}`;
  return h(
    "dl",
    { class: "facts" },
    field("Id", h("span", { class: "mono" }, rows.id[row])),
    field("Source", d.source?.file ? sourceText(d.source) : null),
    field("Question", d.question_id),
    field("Outcome", outcome),
    field("Time", rows.seconds[row] === null ? null : duration(rows.seconds[row])),
    field("Length", `${count(rows.steps[row], "step")}, ${count(rows.chars[row], "character")}`),
  );
}

const JUDGE_LABELS = { model: "Model", model_hash: "Weights", mode: "Mode", prompt_version: "Prompt", seed: "Seed", score_source: "Score from", calibrated: "Calibrated", threshold: "Step is good from", unsure_band: "Unsure between", out_of_domain: "Verdicts outside its domain", criteria: "Criteria", answered_in: "Answered in", saw_reference: "Saw the reference", samples: "Samples", score_std: "Std of samples", off_grid_mass: "Off-grid mass" };
const SCORE_SOURCE = { expected: "expectation over the grid", sampled: "the number in the text" };

/** What a server used for a row: requests, tokens, and money where prices were given (in the currency of these). */
function used({ requests, prompt_tokens: read, cached_tokens: cached, completion_tokens: written, unreported, cost }) {
  const tokens = `${count(read, "token")} read${cached ? ` (${whole.format(cached)} of them cached)` : ""}, ${whole.format(written)} written`;
  return [count(requests, "request"), tokens, unreported ? `${whole.format(unreported)} not reported` : null, typeof cost === "number" ? `cost ${cost.toPrecision(3)}` : null].filter(Boolean).join(", ");
}

function judgeDetails(judge, usage) {
  const shown = (key, value) => (key === "score_source" ? SCORE_SOURCE[value] : typeof value === "boolean" ? (value ? "yes" : "no") : typeof value === "number" && !Number.isInteger(value) ? value.toPrecision(3) : String(value));
  const fields = Object.keys(JUDGE_LABELS).filter((key) => judge[key] !== undefined && judge[key] !== null);
  return h("details", { class: "judge" }, h("summary", null, `Judged by ${judge.model}, ${judge.mode} mode`),
    h("dl", { class: "facts" }, ...fields.map((key) => field(JUDGE_LABELS[key], shown(key, judge[key]))), usage ? field("Used", used(usage)) : null));
}

/** What the first judge says of a row, in the form that a second one's words have in `d.second`. */
const firstSaid = (row, d) => ({ ...d, status: rows.status[row], score: rows.score[row], raw: rows.raw[row], outside: rows.outside[row] });

function verdict(d, steps, name = "Verdict") {
  const scored = d.status === "scored";
  const { score_std: spread, samples } = d.judge;
  const raw = d.raw === null ? null : `${d.judge.calibrated === false ? "not calibrated" : "calibrated"}; raw ${d.raw.toFixed(3)}${spread ? ` ± ${spread.toFixed(3)} over ${samples} samples` : ""}`;
  const headline = !KNOWN.score && scored ? null : scored
    ? h("div", { class: "headline" }, h("span", { class: "big num" }, score2(d.score)), scoreBar(d.score), h("span", { class: "muted" }, raw))
    : h("div", { class: "headline failed" }, icon("warn"), h("strong", null, STATUS[d.status]), h("span", { class: "muted" }, `${STATUS_HELP[d.status]}; there is no score`));
  return h(
    "section",
    { class: "verdict", "aria-label": name },
    name === "Verdict" ? null : h("h3", null, name),
    headline,
    d.outside ? h("p", { class: "cut" }, icon("warn"), `This transcript is ${OUTSIDE}: its score may mean little${d.judge.out_of_domain === "unsure" ? ", and of its steps the judge is unsure" : ""}.${d.distance ? ` It lies ${d.distance.toPrecision(3)} times as far from the training data as the limit.` : ""}`) : null,
    d.reason ? h("div", { class: "reason" }, longText(d.reason, "text mono")) : null,
    d.truncated_tokens ? h("p", { class: "cut" }, icon("cut"), `The judge did not see ${count(d.truncated_tokens, "token")} of this transcript: it was over the budget, and long observations lost their middle.`) : null,
    d.criteria ? h("div", { class: "said" }, h("h3", null, rows.failures ? "Kinds of mistakes" : "Criteria"), h("dl", { class: "answers" }, ...d.criteria.map((one) => criterion(one, steps)))) : null,
    d.critique ? h("div", { class: "said" }, h("h3", null, "Critique"), anchored(d.critique, steps)) : null,
    d.trace ? h("details", { class: "said", open: d.trace.length < 1200 }, h("summary", null, h("h3", null, "Trace"), h("span", { class: "muted" }, count(d.trace.length, "character"))), anchored(d.trace, steps)) : null,
    d.rank ? h("p", { class: "muted" }, `Place ${d.rank.position} of ${d.rank.n_compared} attempts at its question: the score is relative, and says nothing of how good they are.`) : null,
    KNOWN.score ? judgeDetails(d.judge, d.usage) : null,
  );
}

/** An answer to a question of the criteria: what was said, why, and the steps it speaks of. */
function criterion([name, label, value, why, on], steps) {
  const said = label === null ? score2(value) : value === null ? label : `${label} (${score2(value)})`;
  const links = on.filter((k) => k <= steps).map((k) => h("button", { type: "button", class: "link", onclick: () => showStep(k) }, `step ${k}`));
  return h("div", { class: "criterion" }, h("dt", null, name), h("dd", null, h("strong", null, said), value === null ? null : scoreBar(value), why ? anchored(why, steps) : null, links.length ? h("span", { class: "on" }, ...links) : null));
}

const FINDING = { good: "Good", weak: "Good by the threshold", bad: "Bad", unclear: "No clear verdict", unsure: "Unsure" };
const verdictIcon = (verdict) => icon(verdict === "unclear" ? "warn" : verdict);

function finding([, given, text, p, who]) {
  const verdict = markOf(given, p);
  const sure = p === undefined ? null : h("span", { class: "num" }, `good with probability ${p.toFixed(2)}`);
  const said = sure && text.startsWith("good with probability") ? null : text;
  return h("li", { class: `finding ${verdict}` }, verdictIcon(verdict), h("div", null, h("strong", null, who ? `${who}: ${FINDING[verdict].toLowerCase()}` : FINDING[verdict]), said ? h("span", null, said, " ") : null, sure));
}

/** One bar a step, as high as its probability to be good: the number is in its label, the verdict in its mark and its fill. */
function strip(byStep, steps, threshold) {
  const said = Array.from({ length: steps }, (_, n) => (byStep.get(n + 1) || []).find(([, , , p]) => p !== undefined));
  const known = said.filter(Boolean);
  if (!known.length) return null;
  const sure = known.filter((one) => one[1] !== "unsure");
  const lowest = sure.length ? sure.reduce((low, one) => (one[3] < low[3] ? one : low)) : null;
  const unsure = known.length - sure.length;
  const notes = [threshold === undefined ? null : `from ${threshold.toFixed(2)} on it is called good`, lowest ? `the lowest is step ${lowest[0]} with ${lowest[3].toFixed(2)}` : null, unsure ? `of ${count(unsure, "step")} the judge is unsure` : null];
  const bar = (one, n) => {
    const verdict = one && markOf(one[1], one[3]);
    const label = one ? `Step ${n + 1}: ${FINDING[verdict].toLowerCase()}, good with probability ${one[3].toFixed(2)}` : `Step ${n + 1}: not judged`;
    const fill = h("i", { "aria-hidden": "true" });
    fill.style.height = `${one ? Math.max(4, 100 * one[3]) : 0}%`;
    return h("button", { type: "button", class: `p-step ${verdict ?? "none"}`, "aria-label": label, title: label, onclick: () => showStep(n + 1) }, h("span", { class: "p-bar", "aria-hidden": "true" }, fill), one ? verdictIcon(verdict) : null, h("span", { class: "p-k num", "aria-hidden": "true" }, String(n + 1)));
  };
  return h("section", { class: "strip", "aria-label": "Probability of each step to be good" },
    h("h3", null, "Steps"),
    h("p", { class: "muted" }, `${["A bar is the probability that the step was good", ...notes.filter(Boolean)].join("; ")}.`),
    h("div", { class: "p-steps" }, ...said.map(bar)));
}

function stepView(k, step, findings, others) {
  const title = h("h3", { class: "step-title" }, h("button", { type: "button", class: "anchor", title: "Link to this step", onclick: () => showStep(k) }, `Step ${k}`));
  const said = h("div", { class: "turn" }, messageView(step.message), ...(step.observations || []).map(messageView));
  const named = (all, who) => all.map(([at, v, text, p]) => finding([at, v, text, p, KNOWN.second ? who : null]));
  const beside = findings.length + others.length ? h("ul", { class: "findings", "aria-label": `Findings on step ${k}` }, ...named(findings, "A"), ...named(others, "B")) : null;
  return h("li", { class: `step ${verdictOf(findings)}`, id: `step-${k}`, tabindex: "-1" }, title, said, beside);
}

const verdictOf = (findings) => ["bad", "good", "weak", "unsure"].find((wanted) => findings.some(([, v, , p]) => markOf(v, p) === wanted)) ?? "";

function outline(byStep, steps) {
  const pill = (k) => {
    const v = verdictOf(byStep.get(k) || []);
    return h("button", { type: "button", class: `pill ${v}`, "data-step": k, "aria-label": `Step ${k}${v ? `, ${v}` : ""}`, onclick: () => showStep(k) }, String(k), v ? icon(v) : null);
  };
  return h("nav", { class: "outline", "aria-label": "Steps" }, ...Array.from({ length: steps }, (_, n) => pill(n + 1)));
}

/** The whole screen for a row; `place` says where the row stands in the list. */
function transcriptView(row, d, place) {
  const steps = d.steps || [];
  const byStep = new Map();
  for (const item of d.findings || []) byStep.set(item[0], [...(byStep.get(item[0]) || []), item]);
  const stray = (d.findings || []).filter(([k]) => k > steps.length);
  return h(
    "article",
    { class: "transcript", "aria-labelledby": "title" },
    place,
    h("header", null, h("h2", { id: "title", tabindex: "-1" }, longText(d.task || "(no task)", "text title", TITLE)), facts(row, d)),
    verdict(firstSaid(row, d), steps.length, KNOWN.second ? "Judge A" : "Verdict"),
    KNOWN.second ? (d.second ? verdict(d.second, steps.length, "Judge B") : h("p", { class: "stray muted" }, "Judge B has no row of this transcript.")) : null,
    stray.length ? h("section", { class: "stray" }, h("h3", null, "Findings on steps that do not exist"), h("ul", { class: "findings" }, ...stray.map((item) => finding([item[0], item[1], `step ${item[0]}: ${item[2]}`, item[3]])))) : null,
    strip(byStep, steps.length, d.judge.threshold),
    timelineView(row, d),
    guardView(d),
    attemptsView(row),
    steps.length > 1 ? outline(byStep, steps.length) : null,
    ...preludeView(d),
    steps.length
      ? h("ol", { class: "steps" }, ...steps.map((step, n) => stepView(n + 1, step, byStep.get(n + 1) || [], (d.second?.findings || []).filter(([k]) => k === n + 1))))
      : h("p", { class: "empty" }, "No agent steps: the transcript is empty, or was not among the files this report was made from."),
  );
}

/** Mark the search's terms in the open transcript (a paint-only highlight: the text itself is untouched). */
function highlight() {
  if (!CSS.highlights) return;
  CSS.highlights.delete("search");
  const terms = termsOf(query.text).filter((term) => term.length > 1);
  if (!terms.length || list.open < 0) return;
  const ranges = [];
  const walker = document.createTreeWalker($("main"), NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node && ranges.length < 2000; node = walker.nextNode()) {
    const text = node.data.toLowerCase();
    if (text.length !== node.data.length) continue; // lower case moved the offsets (İ): leave this text unmarked
    for (const term of terms) {
      for (let at = text.indexOf(term); at >= 0 && ranges.length < 2000; at = text.indexOf(term, at + term.length)) {
        const range = new Range();
        range.setStart(node, at);
        range.setEnd(node, at + term.length);
        ranges.push(range);
      }
    }
  }
  CSS.highlights.set("search", new Highlight(...ranges));
}

addEventListener("beforeprint", () => {
  for (const details of document.querySelectorAll("details.said, details.judge")) details.open = true;
  for (const toggle of document.querySelectorAll(".more")) if (toggle.getAttribute("aria-expanded") === "false") toggle.expand(true);
});
