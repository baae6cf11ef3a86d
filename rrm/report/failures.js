// Failures by kind: a bar each with its interval; inside it the clearest runs, each quote a link to its step.

const points = (share) => `${(100 * share).toFixed(1)} %`;
const span = ({ low, high }) => `${(100 * low).toFixed(1)} to ${(100 * high).toFixed(1)}`;
const words = (kind) => kind.replaceAll("_", " ");

const BY = { rules: "proven by rules", judge: "named by the judge", likely: "that the judge calls bad, of likely this kind" };

/** A bar for a share from 0 to 100 %, with a line from the interval's low end to its high one. */
function shareBar({ value, low, high }) {
  const [fill, whisker] = [h("i", { class: "fill" }), h("i", { class: "whisker" })];
  fill.style.width = `${100 * value}%`;
  whisker.style.left = `${100 * low}%`;
  whisker.style.width = `${100 * (high - low)}%`;
  return h("span", { class: "track", "aria-hidden": "true" }, fill, whisker);
}

/** The columns' names, with the bars' axis. */
function columnNames(first, runs, last) {
  const axis = h("span", { class: "axis", "aria-hidden": "true" }, ...["0", "25", "50", "75", "100 %"].map((tick) => h("span", null, tick)));
  return h("div", { class: "kind-names" }, h("span", null, first), axis, h("span", null, "share, 95 % interval"), h("span", null, runs), h("span", null, last));
}

function stepLink({ id, step }, text) {
  const row = byId.get(id);
  return row === undefined ? h("span", null, text) : h("button", { type: "button", class: "link", onclick: () => go(addressOf(row, step)) }, text);
}

/** How a share has changed against the other set: grown or fallen where its interval leaves out 0. */
function change(of) {
  if (!of) return null;
  const moved = of.low > 0 ? "grown" : of.high < 0 ? "fallen" : "within noise";
  const signed = (value) => `${value < 0 ? "−" : "+"}${Math.abs(100 * value).toFixed(1)}`;
  return h("span", { class: `change ${of.low > 0 ? "grown" : ""}` }, `${signed(of.value)} points [${signed(of.low)}, ${signed(of.high)}]: ${moved}`);
}

function kindView(kind, of, { descriptions, against }) {
  const filter = h("button", { type: "button", class: "link", onclick: () => chooseKind(kind) }, `Show ${count(of.runs, "run")}`);
  const quotes = of.examples.map((one) => h("li", null, stepLink(one, `${one.id}, step ${one.step}`), h("q", null, one.quote), one.why ? h("span", { class: "muted" }, one.why) : null));
  return h("details", { class: "kind" },
    h("summary", { title: `${words(kind)}: ${points(of.value)} (${span(of)})` }, h("b", null, words(kind)), shareBar(of),
      h("span", { class: "num" }, points(of.value), h("span", { class: "muted" }, ` ${span(of)}`)),
      h("span", { class: "num muted" }, `${of.runs} of ${count(of.of, "run")}`), h("span", { class: "num muted" }, of.first_step === null ? "" : `step ${of.first_step}`), change(against?.[kind])),
    h("div", { class: "clearest" }, h("p", null, `A step that ${descriptions[kind]}; ${Object.entries(of.by).map(([by, n]) => `${count(n, "step")} ${BY[by]}`).join(", ")}. `, filter), h("ol", null, ...quotes)));
}

function chooseKind(kind) {
  query.answer = query.answer === `${kind}: yes` ? "any" : `${kind}: yes`;
  showFilters();
  refresh();
  $("tally").scrollIntoView();
}

function groupView(field, groups) {
  const line = ([name, { failing, kinds }]) => {
    const [worst] = Object.entries(kinds).sort(([, a], [, b]) => b.runs - a.runs);
    return h("li", { class: "kind group" }, h("b", null, name || "(empty)"), shareBar(failing), h("span", { class: "num" }, points(failing.value), h("span", { class: "muted" }, ` ${span(failing)}`)),
      h("span", { class: "num muted" }, count(failing.of, "run")), h("span", { class: "muted" }, worst ? words(worst[0]) : ""));
  };
  const all = Object.entries(groups);
  const shown = all.slice(0, 12);
  return h("details", { class: "groups" }, h("summary", null, `By ${field}: runs with a mistake in ${count(all.length, "group")}`),
    columnNames(field, "of runs", "commonest mistake"), h("ul", null, ...shown.map(line)), all.length > shown.length ? h("p", { class: "muted" }, `and ${count(all.length - shown.length, "group")} more in the summary`) : null);
}

const term = (text, meaning) => h("abbr", { title: meaning }, text);

function failuresView() {
  const f = rows.failures;
  if (!f) return null;
  const present = Object.entries(f.kinds).filter(([kind, { runs }]) => runs || f.against?.[kind]?.before.runs);
  const none = Object.keys(f.kinds).filter((kind) => !present.some(([name]) => name === kind));
  const { calls, identical, errored, never_used: unused } = f.calls;
  const of = (n) => points(calls ? n / calls : 0);
  const [longest] = f.loops;
  return h("section", { class: "failures", "aria-label": "Failures by kind" },
    h("p", null, h("b", { class: "num" }, points(f.failing.value)), ` (${span(f.failing)}) of ${count(f.runs, "run")} have a mistake`, f.first_step === null ? "." : `; the first is at step ${f.first_step} (median).`),
    f.unsure_runs ? h("p", { class: "notice" }, icon("warn"), `${count(f.unsure_runs, "run")} ${f.unsure_runs === 1 ? "has" : "have"} unsure steps, which only the rules judged.`) : null,
    present.length ? columnNames("kind", "runs with it", "first step, median") : null,
    ...present.map(([kind, shares]) => kindView(kind, shares, f)),
    none.length ? h("p", { class: "muted" }, `Not found: ${none.map(words).join(", ")}.`) : null,
    f.not_asked.length ? h("p", { class: "muted" }, `Not asked about: ${f.not_asked.map(words).join(", ")}.`) : null,
    h("p", null, `Wasted of ${count(calls, "call")}: `, term(`${of(identical)} identical`, "the same call returned the same, and nothing changed in between"), ", ",
      term(`${of(errored)} errored`, "the result is an error, or says that the call is malformed"), ", ",
      term(`${of(unused)} never used`, "a call that reads, and no later message has a word that its result was the first to bring"), ". ",
      `${points(f.looping.value)} (${span(f.looping)}) of the runs loop`, ...(longest ? ["; the longest: ", stepLink(longest, `${longest.id}, step ${longest.step}`), `, ${count(longest.steps, "step")} of period ${longest.period}.`] : ["."])),
    ...Object.entries(f.by).map(([field, groups]) => groupView(field, groups)));
}
