// What the whole set looks like: the histogram of scores, whose bins filter, and the statuses, which filter too.

const BINS = 20;
const binOf = (score) => Math.min(BINS - 1, Math.floor(score * BINS + 1e-9));

function binCounts(indices) {
  const counts = new Array(BINS).fill(0);
  for (const i of indices) if (rows.score[i] !== null) counts[binOf(rows.score[i])]++;
  return counts;
}

const everyRow = Array.from({ length: total }, (_, i) => i);
const allCounts = binCounts(everyRow);
const tallest = Math.max(1, ...allCounts);
const bins = [];
let anchorBin = 0;

/** A bin in the 0–100 box of the histogram: the whole set pale, what passes the other filters solid. */
function newBin(k) {
  const x = (k * 100) / BINS + 0.4;
  const width = 100 / BINS - 0.8;
  const shape = (name) => svg("rect", { class: name, x, width, y: 100, height: 0 });
  const all = shape("all");
  const some = shape("some");
  const hit = svg("rect", { class: "hit", x: x - 0.4, width: width + 0.8, y: 0, height: 100 });
  const group = svg("g", { class: "bin", role: "button", tabindex: k === 0 ? "0" : "-1" }, hit, all, some);
  group.addEventListener("click", (event) => chooseBin(k, event.shiftKey));
  return { group, all, some };
}

function setBar(rect, n) {
  const height = n ? Math.max(1.5, (n / tallest) * 98) : 0;
  rect.setAttribute("height", height);
  rect.setAttribute("y", 100 - height);
}

/** A click filters by one bin, the same again lifts it, shift extends from the last. */
function chooseBin(k, extend) {
  const from = extend ? Math.min(anchorBin, k) : k;
  const to = extend ? Math.max(anchorBin, k) : k;
  const [low, high] = [from / BINS, to === BINS - 1 ? 1 : (to + 1) / BINS - 3e-9]; // `binOf` and `inRange` each allow a billionth
  const same = query.low === low && query.high === high;
  if (!extend) anchorBin = k;
  setRange(same ? null : low, same ? null : high);
}

function moveBin(event) {
  const k = bins.findIndex((bin) => bin.group === event.target);
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (k < 0) return;
  if (event.key === "Enter" || event.key === " ") chooseBin(k, event.shiftKey);
  else if (step && bins[k + step]) focusBin(k + step);
  else return;
  event.preventDefault();
  event.stopPropagation();
}

function focusBin(k) {
  bins.forEach((bin, n) => bin.group.setAttribute("tabindex", n === k ? "0" : "-1"));
  bins[k].group.focus();
}

function drawHistogram(beside) {
  const counts = binCounts(beside);
  bins.forEach((bin, k) => {
    setBar(bin.some, counts[k]);
    const centre = (k + 0.5) / BINS;
    const chosen = (query.low ?? 0) <= centre && centre <= (query.high ?? 1);
    bin.group.classList.toggle("out", !chosen);
    bin.group.setAttribute("aria-pressed", (query.low !== null || query.high !== null) && chosen);
    bin.group.setAttribute("aria-label", `Scores ${(k / BINS).toFixed(2)} to ${((k + 1) / BINS).toFixed(2)}: ${count(counts[k], "transcript")}`);
    bin.title.textContent = bin.group.getAttribute("aria-label");
  });
}

function quantile(ordered, q) {
  const at = (ordered.length - 1) * q;
  const low = ordered[Math.floor(at)];
  return low + (ordered[Math.ceil(at)] - low) * (at - Math.floor(at));
}

const shareOf = (marks) => `${((100 * marks.filter(Boolean).length) / marks.length).toFixed(1)} % of ${whole.format(marks.length)}`;

const totalOf = (numbers) => numbers.reduce((all, n) => all + n, 0);
const countsText = (counts) => Object.entries(counts).filter(([, n]) => n).map(([name, n]) => `${whole.format(n)} ${name}`).join(", ") || "not judged";

function figures() {
  const scores = rows.score.filter((score) => score !== null).sort((a, b) => a - b);
  if (!scores.length) return h("p", { class: "figures" }, "No transcript has a score.");
  const mean = scores.reduce((sum, score) => sum + score, 0) / scores.length;
  const figure = (label, value) => h("div", null, h("dt", null, label), h("dd", null, value));
  return h(
    "dl",
    { class: "figures" },
    figure("Transcripts", whole.format(total)),
    figure("Mean score", mean.toFixed(3)),
    figure("Median", quantile(scores, 0.5).toFixed(3)),
    figure("Middle half", `${quantile(scores, 0.25).toFixed(2)}–${quantile(scores, 0.75).toFixed(2)}`),
    figure("Steps", countsText({ bad: totalOf(rows.bad), good: totalOf(rows.good), unsure: totalOf(rows.unsure) })),
    rows.verdict.some(Boolean) ? figure("Runs", countsText(Object.fromEntries(["bad", "good", "unsure"].map((one) => [one, rows.verdict.filter((v) => v === one).length])))) : null,
    KNOWN.outcome ? figure("Successes", shareOf(everyRow.flatMap((i) => success(i) ?? []))) : null,
  );
}

const SHARES = [[1, "whole"], [READ, `${percent(READ)} and more`], [0.5, "half and more"], [0.1, `${percent(0.1)} and more`], [0, "less"]];

/** How much of the transcripts the judge read, as a bar for each share; nothing where all were read whole, or no row says. */
function coverage() {
  const known = rows.coverage.filter((share) => share !== null);
  if (!known.length || known.every((share) => share >= 1)) return null;
  const counts = SHARES.map(([from], k) => known.filter((share) => share >= from && (k === 0 || share < SHARES[k - 1][0])).length);
  const most = Math.max(...counts);
  const line = ([, label], k) => {
    const fill = h("span", { class: "fill" });
    fill.style.width = `${(100 * counts[k]) / most}%`;
    return h("div", { class: "share" }, h("dt", null, label), h("dd", null, h("span", { class: "track", "aria-hidden": "true" }, fill), whole.format(counts[k])));
  };
  return h("section", { class: "coverage", "aria-label": "How much of each transcript was read" }, h("h2", null, "Read of a transcript"), h("dl", null, ...SHARES.map(line)));
}

/** The mean of each question's answers; its name sorts the list by it. Nothing without criteria. */
function criteria() {
  if (!rows.questions.length) return null;
  const line = (name, q) => {
    const values = everyRow.flatMap((i) => rows.criteria[i]?.[q]?.[0] ?? []);
    const mean = values.reduce((sum, value) => sum + value, 0) / (values.length || 1);
    const fill = h("span", { class: "fill" });
    fill.style.width = `${100 * mean}%`;
    const told = values.length ? `${score2(mean)} of ${whole.format(values.length)}` : "no value";
    const sorter = h("button", { type: "button", class: "link", "data-criterion": `criterion ${q}`, "aria-pressed": "false", title: `Sort by ${name}`, onclick: () => sortBy(`criterion ${q}`) }, name);
    return h("div", { class: "share" }, h("dt", null, sorter), h("dd", null, h("span", { class: "track", "aria-hidden": "true" }, fill), told));
  };
  return h("section", { class: "coverage criteria", "aria-label": "Mean of each question's answers" }, h("h2", null, "Criteria: mean of the answers that have a value"), h("dl", null, ...rows.questions.map(line)));
}

/** How many transcripts the judge's figures say nothing of; nothing where there are none, or no row says. */
function outside() {
  const marked = rows.outside.filter((mark) => mark === true).length;
  if (!marked) return null;
  const known = rows.outside.filter((mark) => mark !== null).length;
  const text = `${whole.format(marked)} of ${count(known, "transcript")} ${marked === 1 ? "is" : "are"} ${OUTSIDE}: format, tools or length are unlike its training data.`;
  return h("p", { class: "notice" }, icon("warn"), text);
}

function statusChips() {
  const counts = {};
  for (const status of rows.status) counts[status] = (counts[status] || 0) + 1;
  const chips = Object.keys(STATUS).filter((status) => counts[status]).map((status) =>
    h(
      "button",
      { type: "button", class: "chip", "data-status": status, "aria-pressed": "false", title: STATUS_HELP[status], onclick: () => toggleStatus(status) },
      status === "scored" ? null : icon("warn"), STATUS[status], h("b", null, whole.format(counts[status])),
    ));
  return h("div", { class: "chips", role: "group", "aria-label": "Filter by status" }, ...chips);
}

function buildOverview() {
  const plot = svg("svg", { class: "histogram", viewBox: "0 0 100 100", preserveAspectRatio: "none", role: "group", "aria-label": "Score histogram; choose a bin to filter" });
  for (let k = 0; k < BINS; k++) {
    const bin = newBin(k);
    bin.title = svg("title", {});
    bin.group.append(bin.title);
    setBar(bin.all, allCounts[k]);
    bins.push(bin);
    plot.append(bin.group);
  }
  plot.addEventListener("keydown", moveBin);
  const axis = h("div", { class: "axis", "aria-hidden": "true" }, ...["0", "0.25", "0.5", "0.75", "1"].map((tick) => h("span", null, tick)));
  const failing = failuresView();
  const summary = h("div", { class: "summary" }, figures(), statusChips(), outside(), failing ? null : criteria(), coverage());
  const scores = [summary, agreementView() ?? "", h("div", { class: "plot" }, plot, axis), comparisonView() ?? ""];
  $("overview").append(failing ?? "", ...(failing && rows.score.every((score) => score === null) ? [] : scores));
}
