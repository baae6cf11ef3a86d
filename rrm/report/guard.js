// What a guard said while the run went on: one line a step, with what its tools and the judge took.

const GUARD = { continue: ["good", "go on"], ask: ["warn", "ask"], halt: ["bad", "halt"] };
const NO_NUMBER = { not_judged: "not judged", exhausted: "budget used up" };

function guardSummary({ said, resumed }) {
  const first = (action) => said.find(([, verdict]) => verdict === action);
  const spoke = ["halt", "ask"].map((action) => [action, first(action)]).filter(([, row]) => row).map(([action, [step]]) => `${action} from step ${step} on`);
  const tokens = said.reduce((sum, row) => sum + row[7], 0);
  const seconds = said.reduce((sum, row) => sum + row[8], 0);
  const person = resumed.length ? ` A person let it go on after step ${resumed.join(", ")}.` : "";
  return `${count(said.length, "step")}; ${spoke.join(", ") || "let go on"}. The judge read ${count(tokens, "token")} in ${duration(seconds)}.${person}`;
}

/** One step's line: as a timeline's, with the verdict and the judge's number behind it. */
function guardLine([step, action, status, score, p, reason, calls], spans, whole) {
  const [mark, word] = GUARD[action];
  const number = score === null ? (NO_NUMBER[status] ?? STATUS[status] ?? status) : `score ${score2(score)}${p === null ? "" : `, step ${score2(p)}`}`;
  const bars = spans.map((one) => {
    const bar = h("i", { class: one.kind, title: `${one.name || one.kind} ${duration(one.seconds)}` });
    bar.style.left = `${(100 * one.start) / whole}%`;
    bar.style.width = `${(100 * one.seconds) / whole}%`;
    return bar;
  });
  const called = calls.map(([name, args]) => `${name} ${args}`).join("\n");
  return h("li", null,
    h("button", { type: "button", class: "time-step guard-step", "aria-label": `Step ${step}: ${word}, ${number}${reason ? `, ${reason}` : ""}`, title: called || null, onclick: () => showStep(step) },
      h("span", { class: "num" }, String(step)), h("span", { class: "guard-tools mono" }, calls.map(([name]) => name).join(", ")), h("span", { class: "times" }, ...bars),
      h("span", { class: "guard-said" }, icon(mark), word), h("span", { class: "num" }, number)),
    reason ? h("p", { class: "guard-why muted" }, reason) : null);
}

/** The section; nothing where no guard watched the run. */
function guardView(d) {
  if (!d.guard) return null;
  const spans = placed(d.guard.spans || []);
  const end = Math.max(0, ...spans.map((one) => one.start + one.seconds)) || 1;
  const { said = [], resumed = [] } = d.guard;
  const lines = said.map((row) => () => guardLine(row, spans.filter((one) => one.step === row[0]), end));
  const body = h("ol", { class: "time-steps" }, ...lines.slice(0, TIMED).map((line) => line()));
  const more = lines.length > TIMED ? h("button", { type: "button", class: "link", onclick: () => { body.append(...lines.slice(TIMED).map((line) => line())); more.remove(); } }, `Show ${count(lines.length - TIMED, "more step")}`) : null;
  const legend = spans.length ? h("span", { class: "legend" }, h("span", null, h("i", { class: "tool" }), "tools"), h("span", null, h("i", { class: "judge" }), "judge")) : null;
  return h("details", { class: "timeline guard", open: lines.length <= 40 }, h("summary", null, h("h3", null, "Guard"), h("span", { class: "muted" }, guardSummary({ said, resumed }))), legend, body, more);
}
