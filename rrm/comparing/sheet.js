// A blind sheet: one transcript at a time, what two judges said of it side by side, and the rater's answers, kept in this browser.

const KNOWN = JSON.parse($("known").textContent);
const KEPT = `rrm-compare-${KNOWN.sheet}`;
const CHOICES = [["left", "1", "left is better"], ["tie", "0", "equally good or bad"], ["right", "2", "right is better"]];
const highlight = () => {}; // nothing is searched here
const kept = (() => { try { return JSON.parse(localStorage.getItem(KEPT)) || {}; } catch { return {}; } })();
const answers = kept.answers || {};
let n = 1;

function keep() {
  try {
    localStorage.setItem(KEPT, JSON.stringify({ rater: $("rater").value, answers }));
    tell("");
  } catch {
    tell(" · this browser keeps nothing: save the answers before you close the page");
  }
}

const tell = (more) => ($("done").textContent = `${whole.format(Object.keys(answers).length)} of ${whole.format(KNOWN.items)} answered${more}`);

function sideView(name, said) {
  const verdicts = { good: "good", bad: "bad", unclear: "warn" };
  const findings = (said.findings || []).map(([k, verdict, text]) => h("li", { class: `finding ${verdict}` }, icon(verdicts[verdict]), h("div", null, h("strong", null, `Step ${k}: ${verdict}`), text ? h("span", null, text) : null)));
  return h("section", { class: "side-of", "aria-label": name },
    h("h2", null, name),
    said.score === undefined ? null : h("p", { class: "num" }, `Score ${said.score.toFixed(2)}`),
    said.critique ? longText(said.critique, "text", WHOLE) : null,
    findings.length ? h("ul", { class: "findings" }, ...findings) : null);
}

function show(to) {
  n = Math.min(Math.max(1, to), KNOWN.items);
  const { view, left, right } = JSON.parse($(`item-${n}`).textContent);
  const steps = (view.steps || []).map((one, i) => h("li", { class: "step", id: `step-${i + 1}` },
    h("h3", { class: "step-title" }, `Step ${i + 1}`),
    h("div", { class: "turn" }, messageView(one.message), ...(one.observations || []).map(messageView))));
  $("main").replaceChildren(h("article", { class: "transcript" },
    h("header", null, h("h2", { id: "title" }, longText(view.task || "(no task)", "text title", TITLE))),
    h("div", { class: "sides" }, sideView("Left", left), sideView("Right", right)),
    h("h3", null, "What the agent did"),
    ...preludeView(view),
    h("ol", { class: "steps" }, ...steps)));
  $("main").scrollTop = 0;
  $("place").textContent = `${whole.format(n)} of ${whole.format(KNOWN.items)}`;
  draw();
}

function draw() {
  $("choice").replaceChildren(...CHOICES.map(([value, key, label]) => h("button", { type: "button", class: "choice", "aria-pressed": String(answers[n] === value), onclick: () => answer(value) }, h("kbd", null, key), label)));
  tell("");
}

function answer(value) {
  if (value === null) delete answers[n];
  else answers[n] = value;
  keep();
  if (value !== null && n < KNOWN.items) show(n + 1);
  else draw();
}

function nextOpen() {
  for (let k = 1; k <= KNOWN.items; k++) {
    const at = ((n - 1 + k) % KNOWN.items) + 1;
    if (!answers[at]) return show(at);
  }
  tell(" · save them now: e");
}

function save() {
  const rater = $("rater").value.trim();
  if (!rater) {
    tell(" · say your name first");
    return $("rater").focus();
  }
  const body = JSON.stringify({ sheet: KNOWN.sheet, rater, answers }, null, 1) + "\n";
  const address = URL.createObjectURL(new Blob([body], { type: "application/json" }));
  const name = rater.replace(/[^\p{L}\p{N}._-]+/gu, "_");
  h("a", { href: address, download: `answers-${name}.json` }).click();
  setTimeout(() => URL.revokeObjectURL(address), 60_000);
  tell(" · saved as a file, to send back");
}

const KEYS = {
  1: () => answer("left"), ArrowLeft: () => answer("left"), 2: () => answer("right"), ArrowRight: () => answer("right"), 0: () => answer("tie"), x: () => answer(null),
  j: () => show(n + 1), k: () => show(n - 1), Enter: nextOpen, e: save, "?": () => $("help").showModal(),
};

addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing || $("help").open) return;
  if (event.target.closest("input")) {
    if (event.key === "Enter" || event.key === "Escape") event.target.blur();
    return;
  }
  if (event.key === "Enter" && event.target.closest("button, summary") && event.target.matches(":focus-visible")) return;
  const action = Object.hasOwn(KEYS, event.key) && KEYS[event.key];
  if (!action || (event.repeat && !"jk".includes(event.key))) return;
  event.preventDefault();
  action();
});
$("rater").value = kept.rater || "";
$("rater").addEventListener("input", keep);
$("export").addEventListener("click", save);
$("help-open").addEventListener("click", () => $("help").showModal());
$("help-close").addEventListener("click", () => $("help").close());
show(1);
if (answers[1]) nextOpen();
