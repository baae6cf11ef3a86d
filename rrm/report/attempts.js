// Attempts at one question: a table of them beside a transcript, and two of them side by side with their differences.

const attempts = new Map(); // group → rows, in the report's order
rows.group.forEach((group, i) => attempts.get(group)?.push(i) ?? attempts.set(group, [i]));
const attemptsAt = (row) => attempts.get(rows.group[row]);

/** The attempt that a row is best compared with: one that ended otherwise, of those the one whose score is furthest away. */
function counterpart(row) {
  const others = attemptsAt(row).filter((i) => i !== row);
  const unlike = (i) => (success(i) !== success(row) ? 2 : 0) + Math.abs((rows.score[i] ?? 0) - (rows.score[row] ?? 0));
  return others.reduce((best, i) => (unlike(i) > unlike(best) ? i : best), others[0]);
}

const compare = (row, other) => go(addressOf(row, null, other), true);

const ATTEMPTS = 100; // drawn before the rest is asked for: transcripts without question ids may all have one task text

/** All attempts at a row's question; nothing where it is the only one. */
function attemptsView(row) {
  const all = attemptsAt(row);
  if (all.length < 2) return null;
  const line = (i) => h("tr", { "aria-current": i === row },
    h("td", { class: "num" }, score2(rows.score[i])), h("td", null, outcomeText(rows.outcome[i]), agrees(i) === false ? icon("differ") : null), h("td", { class: "num" }, whole.format(rows.steps[i])),
    h("td", null, i === row ? h("span", { class: "mono" }, rows.id[i], " (this one)") : h("button", { type: "button", class: "link mono", onclick: () => go(addressOf(i), true) }, rows.id[i] || "(no id)")),
    h("td", null, i === row ? null : h("button", { type: "button", class: "quiet", "aria-label": `Compare with ${rows.id[i]}`, onclick: () => compare(row, i) }, "Compare")));
  const head = ["Score", "Outcome", "Steps", "Attempt", "Side by side"].map((name) => h("th", { scope: "col" }, name));
  const body = h("tbody");
  const more = h("button", { type: "button", class: "link", onclick: () => fill() });
  const fill = () => {
    const next = all.slice(body.children.length, body.children.length + ATTEMPTS);
    body.append(...next.map(line));
    const left = all.length - body.children.length;
    more.textContent = `Show ${whole.format(Math.min(left, ATTEMPTS))} more of ${whole.format(left)}`;
    more.hidden = left === 0;
  };
  const details = h("details", { class: "attempts", ontoggle: () => body.children.length || fill() },
    h("summary", null, h("h3", null, "Attempts at this question"), h("span", { class: "muted" }, whole.format(all.length)), h("button", { type: "button", class: "link side-by-side", onclick: (event) => { event.preventDefault(); compare(row, counterpart(row)); } }, "Compare with the most unlike")),
    h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Attempts at this question" }, h("table", null, h("thead", null, h("tr", null, ...head)), body), more));
  details.open = all.length <= 6;
  if (details.open) fill();
  return details;
}

/** A step's texts and pictures under their labels, in a form that two steps can be compared by. */
function partsOf(step) {
  const of = (message) => [
    ["thinks", message.reasoning],
    [message.role === "assistant" ? "says" : message.role === "tool" ? (message.call ? `result of call ${message.call}` : "result") : SPEAKER[message.role], message.missing ? "(no result)" : message.text],
    ...(message.images ?? []).map((picture) => ["picture", picture]),
    ...(message.calls ?? []).map(([name, args], n, { length }) => [length > 1 ? `call ${n + 1}` : "calls", [name, ...(typeof args === "string" ? [args] : args.map(([key, value]) => `${key}: ${value}`))].join("\n")]),
  ];
  const seen = {};
  return new Map([step.message, ...(step.observations ?? [])].flatMap(of).filter(([, text]) => text).map(([label, text]) => {
    seen[label] = (seen[label] ?? 0) + 1;
    return [seen[label] > 1 ? `${label} (${seen[label]})` : label, text];
  }));
}

function part(label, text, pieces, tag) {
  const body = pieces ? h("div", { class: "text mono" }, ...pieces.map(([piece, shared]) => (shared ? piece : h(tag, null, piece)))) : longText(text, "text mono", BRIEF);
  return h("div", { class: "part" }, h("p", { class: "who" }, label), body);
}

/** A picture, its label marked where the other side has another, or none. */
function pictured(label, picture, mate, tag) {
  const other = JSON.stringify(picture) !== JSON.stringify(mate);
  return h("div", { class: "part" }, h("p", { class: "who" }, other ? h(tag, null, label) : label), imageView(picture, 0));
}

/** One side of a line: the step's parts, those of them marked that the other side has not. */
function sideView(letter, k, step, other, tag, findings) {
  if (!step) return h("div", { class: "half none" }, h("p", { class: "muted" }, `${letter} has no such step`));
  const against = other ? partsOf(other) : new Map();
  const parts = Array.from(partsOf(step), ([label, text]) => {
    if (typeof text !== "string") return pictured(label, text, against.get(label), tag);
    const mate = against.get(label);
    const changes = mate === undefined || text.length > WHOLE.chars ? null : wordChanges(tag === "del" ? text : mate, tag === "del" ? mate : text);
    return part(label, text, changes?.[tag === "del" ? 0 : 1], tag);
  });
  return h("div", { class: "half" }, h("h4", null, `${letter} · step ${k + 1}`), ...parts, findings.length ? h("ul", { class: "findings" }, ...findings.map(finding)) : null);
}

function pairView([i, j], left, right, n) {
  const [a, b] = [left.steps?.[i], right.steps?.[j]];
  const on = (d, k) => (d.findings ?? []).filter(([step]) => step === k + 1);
  const sides = [sideView("A", i, a, b, "del", on(left, i)), sideView("B", j, b, a, "ins", on(right, j))];
  if (a && b && JSON.stringify([...partsOf(a)]) === JSON.stringify([...partsOf(b)])) {
    return h("li", { class: "pair same" }, h("details", null, h("summary", { class: "muted" }, `A step ${i + 1} and B step ${j + 1} are the same`), h("div", { class: "halves" }, ...sides)));
  }
  const same = a && b && actionOf(a) === actionOf(b);
  return h("li", { class: "pair differs", tabindex: "-1", "data-n": n, "aria-label": same ? "The same action, another result or thought" : "A difference" }, same ? h("p", { class: "muted" }, "The same action; what it thought or what came back differs") : null, h("div", { class: "halves" }, ...sides));
}

function attemptHead(letter, row, control) {
  return h("div", { class: "half" }, h("h3", null, `${letter} `, control ?? h("span", { class: "mono" }, rows.id[row])),
    h("p", null, h("span", { class: "num" }, rows.score[row] === null ? STATUS[rows.status[row]] : `score ${score2(rows.score[row])}`), ` · outcome ${outcomeText(rows.outcome[row])} · ${count(rows.steps[row], "step")}${rows.seconds[row] === null ? "" : ` · ${duration(rows.seconds[row])}`}`),
    h("button", { type: "button", class: "link", onclick: () => go(addressOf(row), true) }, `Read ${letter} alone`));
}

/** The screen of two attempts; `place` is the bar above every transcript. */
function besideView(row, left, other, right, place) {
  const pairs = lines((left.steps ?? []).map(actionOf), (right.steps ?? []).map(actionOf));
  const views = pairs.map((pair, n) => pairView(pair, left, right, n));
  const differing = views.filter((view) => view.classList.contains("differs"));
  const first = differing.length ? pairs[views.indexOf(differing[0])] : null;
  const said = first ? `${whole.format(views.length - differing.length)} of ${count(views.length, "line")} are the same; the first difference is at ${first[0] === null ? "" : `A step ${first[0] + 1}`}${first[0] !== null && first[1] !== null ? ", " : ""}${first[1] === null ? "" : `B step ${first[1] + 1}`}.` : "No difference in what they did or were answered.";
  const choose = h("select", { "aria-label": "Attempt B", onchange: (event) => compare(row, Number(event.target.value)) },
    ...attemptsAt(row).filter((i) => i !== row).map((i) => h("option", { value: i, selected: i === other }, `${rows.id[i]} (${score2(rows.score[i])}, ${outcomeText(rows.outcome[i])})`)));
  return h("article", { class: "transcript beside", "aria-labelledby": "title" }, place,
    h("header", null, h("h2", { id: "title", tabindex: "-1" }, longText(left.task || "(no task)", "text title", TITLE))),
    h("div", { class: "halves heads" }, attemptHead("A", row), attemptHead("B", other, choose)),
    h("p", { class: "muted" }, said, " ", differing.length ? h("button", { type: "button", class: "link", onclick: () => differing[0].focus() }, "Go to the first difference") : null, " Marked: ", h("del", null, "what only A has"), ", ", h("ins", null, "what only B has"), "."),
    h("ol", { class: "pairs" }, ...views));
}

/** Focus the next or previous difference. */
function differenceBy(by) {
  const all = Array.from(main.querySelectorAll(".pair.differs"));
  const now = all.indexOf(document.activeElement?.closest(".pair"));
  const next = all[now < 0 ? (by > 0 ? 0 : all.length - 1) : now + by];
  next?.scrollIntoView({ block: "start" });
  next?.focus({ preventScroll: true });
}
