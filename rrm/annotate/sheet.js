// A blind sheet: one transcript at a time, what two judges said of it side by side, and each rater's answers, kept in this browser.

const KNOWN = JSON.parse($("known").textContent);
const KEPT = `rrm-compare/${KNOWN.sheet}/`; // and the rater's name
const CHOICES = [["left", "1", "left is better"], ["tie", "0", "equally good or bad"], ["right", "2", "right is better"]];
const highlight = () => {}; // nothing is searched here
let rater = "";
let answers = {};
let n = 1;

/** What a rater answered in this browser so far. */
function keptOf(name) {
  try {
    const found = Object.entries(JSON.parse(localStorage.getItem(KEPT + name)) || {});
    return Object.fromEntries(found.filter(([k, value]) => k >= 1 && k <= KNOWN.items && CHOICES.some(([choice]) => choice === value)));
  } catch { return {}; }
}

function keep() {
  try {
    localStorage.setItem(KEPT + rater, JSON.stringify(answers));
    tell("");
  } catch {
    tell(" · this browser keeps nothing: save the answers before you close the page");
  }
}

// Who rates

/** Ask, before anything is answered: the next rater at this browser must not go on with another's answers unawares. */
function ask() {
  let names = [];
  try { names = Object.keys(localStorage).filter((name) => name.startsWith(KEPT)).map((name) => name.slice(KEPT.length)).sort(); } catch { /* it keeps nothing */ }
  $("raters").replaceChildren(...names.map((name) => h("button", { type: "button", class: "choice", onclick: () => begin(name) }, `Go on as ${name}`, h("span", { class: "muted num" }, `${whole.format(Object.keys(keptOf(name)).length)} answered`))));
  $("rater").value = "";
  $("rates").showModal();
  $("rater").focus();
}

function begin(name) {
  rater = name;
  try { sessionStorage.setItem(KEPT, rater); } catch { /* asked again after a reload then */ }
  answers = keptOf(rater);
  $("rates").close();
  $("who").textContent = `as ${rater}`;
  show(1);
  if (answers[1]) nextOpen();
}

const tell = (more) => ($("done").textContent = `${whole.format(Object.keys(answers).length)} of ${whole.format(KNOWN.items)} answered${more}`);

function sideView(name, said) {
  const verdicts = { good: "good", bad: "bad", unclear: "warn", unsure: "unsure" };
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
    h("header", null, h("h2", { id: "title" }, longText(view.task || "(no task)", "text title", TITLE)), ...askedPictures(view)),
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
  draw();
  keep();
}

/** To the next without an answer; from one without, nowhere: none is left behind unawares. */
function nextOpen() {
  if (!answers[n]) return tell(" · no answer here yet: 1, 0 or 2; j goes on without");
  for (let k = 1; k < KNOWN.items; k++) {
    const at = ((n - 1 + k) % KNOWN.items) + 1;
    if (!answers[at]) return show(at);
  }
  tell(" · save them now: e");
}

function save() {
  const given = Object.keys(answers).map(Number).sort((a, b) => a - b).map((k) => [k, answers[k]]);
  const sum = checksum([KNOWN.sheet, rater, given]);
  const body = JSON.stringify({ sheet: KNOWN.sheet, rater, answers, checksum: sum }, null, 1) + "\n";
  const address = URL.createObjectURL(new Blob([body], { type: "application/json" }));
  const name = rater.replace(/[^\p{L}\p{N}._-]+/gu, "_");
  h("a", { href: address, download: `answers-${name}.json` }).click();
  setTimeout(() => URL.revokeObjectURL(address), 60_000);
  tell(" · saved as a file, to send back");
}

const KEYS = {
  1: () => answer("left"), ArrowLeft: () => answer("left"), 2: () => answer("right"), ArrowRight: () => answer("right"), 0: () => answer("tie"), x: () => answer(null),
  j: () => show(n + 1), k: () => show(n - 1), Enter: nextOpen, m: () => unfold($("main")) || tell(" · nothing here is cut short"), e: save, "?": () => $("help").showModal(),
};

addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing || document.querySelector("dialog[open]")) return;
  if (event.key === "Enter" && event.target.closest("button, summary") && event.target.matches(":focus-visible")) return; // what has the focus is meant
  const action = Object.hasOwn(KEYS, event.key) && KEYS[event.key];
  if (!action || (event.repeat && !"jk".includes(event.key))) return;
  event.preventDefault();
  action();
});
$("name").addEventListener("submit", (event) => {
  event.preventDefault();
  const name = $("rater").value.trim().split(/\s+/u).join(" ");
  if (name) begin(name);
});
$("rates").addEventListener("close", () => { if (!rater) ask(); }); // nothing is answered by nobody
addEventListener("storage", (event) => { if (rater && event.key === KEPT + rater) { answers = keptOf(rater); draw(); } }); // the same rater in another tab
$("other").addEventListener("click", ask);
$("back").addEventListener("click", () => show(n - 1));
$("forth").addEventListener("click", () => show(n + 1));
$("next").addEventListener("click", nextOpen);
$("export").addEventListener("click", save);
$("help-open").addEventListener("click", () => $("help").showModal());
$("help-close").addEventListener("click", () => $("help").close());
const before = (() => { try { return sessionStorage.getItem(KEPT); } catch { return null; } })(); // this tab, reloaded
if (before) begin(before);
else ask();
