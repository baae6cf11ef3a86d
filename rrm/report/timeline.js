// When what took how long, where the transcript has times: one line a step on a common axis.

const TIMED = 300; // steps drawn before the rest is asked for
const KIND = { agent: "agent", tool: "tools", user: "user" };

/** Spans with the place where they begin: by the transcript's clock, or one after another where a span has none. */
function placed(spans) {
  const clock = spans.every(([, , , , start]) => start !== null);
  let end = 0;
  return spans.map(([step, kind, name, seconds, at]) => {
    const start = clock ? Math.max(0, at) : end;
    end = Math.max(end, start + seconds);
    return { step, kind, name, seconds, start };
  });
}

const spanName = ({ kind, name }) => (kind === "tool" ? name || "tool" : KIND[kind]);

function timeSummary(spans, whole) {
  const sums = Object.entries(KIND).map(([kind, label]) => [label, spans.filter((s) => s.kind === kind).reduce((sum, s) => sum + s.seconds, 0)]);
  const parts = sums.filter(([, seconds]) => seconds > 0).map(([label, seconds]) => `${label} ${duration(seconds)}`);
  const longest = spans.reduce((most, one) => (one.seconds > most.seconds ? one : most));
  return `${duration(whole)} in all${parts.length ? `: ${parts.join(", ")}` : ""}. The longest is step ${longest.step}, ${spanName(longest)}, with ${duration(longest.seconds)}.`;
}

/** One step's line: a button that goes to the step, its spans on the axis, and how long they took together. */
function stepTimes(step, spans, whole) {
  const bars = spans.map((one) => {
    const bar = h("i", { class: one.kind, title: `${spanName(one)} ${duration(one.seconds)}` });
    bar.style.left = `${(100 * one.start) / whole}%`;
    bar.style.width = `${(100 * one.seconds) / whole}%`;
    return bar;
  });
  const took = spans.reduce((sum, one) => sum + one.seconds, 0);
  const said = spans.map((one) => `${spanName(one)} ${duration(one.seconds)}`).join(", ");
  return h("li", null, h("button", { type: "button", class: "time-step", "aria-label": `Step ${step}: ${said}, from ${duration(spans[0].start)} on`, onclick: () => showStep(step) },
    h("span", { class: "num" }, String(step)), h("span", { class: "times" }, ...bars), h("span", { class: "num" }, duration(took))));
}

/** The section; nothing where the transcript has no times. */
function timelineView(row, d) {
  if (!d.spans) return null;
  const spans = placed(d.spans);
  const end = Math.max(rows.seconds[row] ?? 0, ...spans.map((one) => one.start + one.seconds)) || 1;
  const steps = Map.groupBy ? Map.groupBy(spans, (one) => one.step) : spans.reduce((found, one) => found.set(one.step, [...(found.get(one.step) ?? []), one]), new Map());
  const lines = Array.from(steps, ([step, its]) => () => stepTimes(step, its, end));
  const body = h("ol", { class: "time-steps" }, ...lines.slice(0, TIMED).map((line) => line()));
  const more = lines.length > TIMED ? h("button", { type: "button", class: "link", onclick: () => { body.append(...lines.slice(TIMED).map((line) => line())); more.remove(); } }, `Show ${count(lines.length - TIMED, "more step")}`) : null;
  const legend = h("span", { class: "legend" }, ...Object.entries(KIND).map(([kind, label]) => h("span", null, h("i", { class: kind }), label)));
  return h("details", { class: "timeline", open: lines.length <= 40 }, h("summary", null, h("h3", null, "Timeline"), h("span", { class: "muted" }, timeSummary(spans, rows.seconds[row] ?? end))), legend, body, more);
}
