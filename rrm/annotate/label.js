// The labelling page: one transcript on screen, and what is said of it by keys and buttons. What was said is kept and sent in actions.js.

const OUTCOMES = [["good", "1", "good"], ["bad", "2", "bad"], ["unsure", "3", "warn"]];
const VERDICTS = [["good", "g", "good"], ["bad", "b", "bad"], ["unclear", "u", "warn"]];
const highlight = () => {}; // nothing is searched here
const main = $("main");
let now = null; // the transcript on screen: {n, digest, id, steps, view, said, version}
let step = 0; // the step that keys speak of; 0: none
let turn = 0; // of transcripts asked for: only the last one is shown
let going = 0; // the number of the one that is on its way; 0: none
let leaving = 0; // how many look for the next that is not done

/** What a key did not do, or what was undone: until the next key. */
function flash(text) {
  $("hint").textContent = text;
}

function progress({ done, total, version: heard, last: stands }) {
  if (heard >= version) last = stands;
  version = Math.max(version, heard);
  $("progress").value = total ? done / total : 0;
  $("done").textContent = `${whole.format(done)} of ${whole.format(total)} done`;
}

// One transcript

async function load(n, at = null) {
  const mine = ++turn;
  going = n;
  let item;
  try {
    item = await get(`item/${n}`);
  } catch (error) {
    if (mine === turn) going = 0;
    trouble(error instanceof TypeError ? "rrm label does not answer. Start it again with the same command; what was saved is kept." : error.message);
    return;
  }
  if (mine !== turn) return;
  going = 0;
  trouble("");
  now = item;
  for (const { act } of waiting) if (act.digest === now.digest) foresee(act.change); // said, but not on the disk yet
  step = at === null ? Math.min(1, now.steps) : Math.min(at, now.steps);
  progress(item);
  $("place").textContent = `${whole.format(now.n)} of ${whole.format(now.total)}`;
  main.replaceChildren(articleView());
  draw();
  main.scrollTop = 0;
  if (at) choose(step);
  else mark();
  address();
  offer();
}

const address = () => history.replaceState(null, "", `#${now.n}${step > 1 ? `/${step}` : ""}`);

function articleView() {
  const { view, steps } = now;
  const items = (view.steps || []).map((one, i) => h("li", { class: "step", id: `step-${i + 1}`, tabindex: "-1" },
    h("h3", { class: "step-title" }, h("button", { type: "button", class: "anchor", onclick: () => choose(i + 1) }, `Step ${i + 1}`)),
    h("div", { class: "turn" }, messageView(one.message), ...(one.observations || []).map(messageView)),
    h("div", { class: "said-of", id: `said-${i + 1}` })));
  return h("article", { class: "transcript" },
    h("header", null, h("h2", { id: "title" }, longText(view.task || "(no task)", "text title", TITLE)),
      ...askedPictures(view),
      h("p", { class: "muted" }, h("span", { class: "mono" }, now.id), ` · ${count(steps, "step")}`)),
    ...preludeView(view),
    steps ? h("ol", { class: "steps" }, ...items) : h("p", { class: "empty" }, "The agent never spoke: there are no steps."));
}

function choice(of, chosen, [value, key, mark], label, onclick) {
  return h("button", { type: "button", id: `${of}-${value}`, class: `choice ${value}`, "aria-pressed": String(chosen === value), onclick }, icon(mark), label, h("kbd", null, key));
}

/** A button of a step that does what a key does to the chosen one. */
const onStep = (k, name, label, spoken, key, action) => h("button", { type: "button", id: `${name}-${k}`, class: "quiet", "aria-label": spoken, "aria-keyshortcuts": key, "aria-haspopup": "dialog",
  onclick: () => { flash(""); choose(k, false); action(k); } }, label, h("kbd", null, key));

const fill = (el, ...children) => el.replaceChildren(...children.filter((child) => child !== null));

function draw() {
  const { said, steps } = now;
  const { id: focused } = document.activeElement; // a button that is drawn anew keeps the focus
  for (let k = 1; k <= steps; k++) {
    const one = said.steps[k] || {};
    $(`step-${k}`).className = `step ${one.verdict || ""}`;
    const place = $(`said-${k}`);
    fill(place,
      h("div", { class: "choices", role: "group", "aria-label": `Step ${k}` }, ...VERDICTS.map((v) => choice(`step-${k}`, one.verdict, v, v[0], () => { choose(k, false); verdict(v[0]); }))),
      h("div", { class: "deeds" },
        onStep(k, "comment", "Comment", `Comment on step ${k}`, "c", comment),
        WRONG.has(one.verdict) ? onStep(k, "wrong", "What was wrong", `What was wrong with step ${k}`, "f", categories) : null),
      one.category ? h("p", { class: "tag" }, one.category) : null,
      one.comment ? h("p", { class: "text note" }, one.comment) : null,
      one.comment && !one.verdict && !one.category ? h("p", { class: "note unsaid" }, icon("warn"), " In no label yet: say whether the step was good, bad or unclear.") : null,
    );
  }
  fill($("outcome"),
    h("span", { class: "muted" }, KNOWN.ask === "steps" ? "Outcome (not asked for)" : "Did the run do what was asked?"),
    h("div", { class: "choices", role: "group", "aria-label": "Outcome" }, ...OUTCOMES.map((o) => choice("run", said.outcome, o, o[0], () => outcome(o[0])))),
    said.comment ? h("p", { class: "text note" }, said.comment) : null,
  );
  if (focused && !document.activeElement?.id) $(focused)?.focus({ preventScroll: true });
  mark();
}

function mark() {
  for (const el of main.querySelectorAll(".step[aria-current]")) el.removeAttribute("aria-current");
  if (step) $(`step-${step}`).setAttribute("aria-current", "true");
}

function choose(k, scroll = true) {
  if (!now || k < 1 || k > now.steps) return;
  step = k;
  mark();
  address();
  if (!scroll) return;
  $(`step-${k}`).scrollIntoView({ block: "start" });
  $(`step-${k}`).focus({ preventScroll: true });
}

// What is said

const WRONG = new Set(["bad", "unclear"]); // verdicts of a step that something may be wrong with

/** What the server will make of a change, shown before it answers. */
function foresee({ field, step: k, value }) {
  const { said } = now;
  const of = (n) => (said.steps[n] ||= { verdict: null, category: null, comment: "" });
  if (field === "rest") for (let n = 1; n <= now.steps; n++) of(n).verdict ||= value;
  else if (field === "verdict") Object.assign(of(k), { verdict: value, category: WRONG.has(value) ? of(k).category : null });
  else if (field === "category") Object.assign(of(k), { verdict: of(k).verdict || (value && "bad"), category: of(k).verdict === "good" ? null : value });
  else if (field === "step_comment") of(k).comment = value || "";
  else said[field] = value;
}

function say(field, value, k = null) {
  if (!now) return;
  const change = { field, value, ...(k === null ? {} : { step: k }) };
  foresee(change);
  draw();
  act({ digest: now.digest, change }, now);
}

const outcome = (value) => say("outcome", value);
const verdict = (value) => (step ? say("verdict", value, step) : flash("There is no step"));

function category(value) {
  $("categories").close();
  say("category", value, step);
}

const CATEGORY_KEYS = "123456789abcdefghijklmnopqrstuvwxyz";
function categories() {
  if (!step) return flash("There is no step");
  if (now.said.steps[step]?.verdict === "good") return flash(`Step ${step} is good: nothing was wrong with it`);
  const chosen = now.said.steps[step]?.category;
  $("choices").replaceChildren(
    ...KNOWN.categories.map((name, i) => h("button", { type: "button", class: "choice", "aria-pressed": String(name === chosen), onclick: () => category(name) }, h("kbd", null, CATEGORY_KEYS[i]), name)),
    h("button", { type: "button", class: "choice", onclick: () => category(null) }, h("kbd", null, "0"), "nothing of these"));
  $("categories").showModal();
}

// Keys

const move = (by) => { if (!now) return; flash(""); const n = now.n + by; if (n >= 1 && n <= now.total) load(n); else flash(by > 0 ? "This is the last transcript" : "This is the first transcript"); };

/** What a hint calls a way on: a key, or where keys are not named (label.css) a button. */
const way = (key, button) => (matchMedia("(max-width: 599px), (hover: none) and (pointer: coarse)").matches ? button : key);

/** What is still to be said of the transcript on screen; "": it is done. Goes to the first step that lacks a verdict. */
function missing() {
  if (KNOWN.ask !== "steps" && !now.said.outcome) return `No outcome yet: ${way("1 good, 2 bad, 3 unsure", "good, bad or unsure")}`;
  const open = KNOWN.ask === "outcome" ? [] : Array.from({ length: now.steps }, (_, i) => i + 1).filter((k) => !now.said.steps[k]?.verdict);
  if (open.length) choose(open[0]);
  return open.length ? `No verdict yet on ${count(open.length, "step")}` : "";
}

async function nextOpen() {
  seen();
  const lacks = missing();
  if (lacks) return flash(`${lacks}; ${way("j", "›")} goes on without`);
  const from = now.digest;
  leaving++;
  try {
    while (waiting.length) { // what is done is known when everything is saved
      await new Promise((again) => setTimeout(again, 10));
    }
    if (now.digest !== from) return; // another was asked for meanwhile
    if (refusals.length) return flash(`Something was not taken: ${way("Enter", "Next open")} goes on all the same`);
    const { n } = await get(`open/${now.n}`);
    if (n) await load(n);
    else flash("All are done");
  } finally {
    leaving--;
  }
}

const part = (k) => (k ? $(`step-${k}`) : main);
const more = (k) => unfold(part(k)) || flash(k ? `Nothing is cut short in step ${k}` : "Nothing is cut short");
function ends() {
  const found = [...part(step).querySelectorAll(".ending:not([hidden])")]; // of a text that is shown whole it is hidden
  const closed = found.filter((ending) => ending.getAttribute("aria-expanded") === "false");
  for (const ending of closed.length ? closed : found) ending.click();
  if (!found.length) flash("No text here has an end that is cut off");
}

const KEYS = {
  1: () => outcome("good"), 2: () => outcome("bad"), 3: () => outcome("unsure"), 0: () => outcome(null),
  j: () => move(1), ArrowRight: () => move(1), k: () => move(-1), ArrowLeft: () => move(-1),
  Enter: () => nextOpen().catch((error) => trouble(error.message)),
  n: () => choose(step + 1), ArrowDown: () => choose(step + 1), p: () => choose(step - 1), ArrowUp: () => choose(step - 1),
  g: () => verdict("good"), b: () => verdict("bad"), u: () => verdict("unclear"), x: () => verdict(null),
  G: () => (now.steps ? say("rest", "good") : flash("There is no step")),
  f: categories, c: () => (step ? comment(step) : flash("There is no step")), C: () => comment(null),
  m: () => more(step), M: () => more(0), e: ends, z: undo,
  "/": () => { $("goto-number").value = ""; $("goto").showModal(); },
  "?": () => $("help").showModal(),
};

const OF_SCREEN = new Set("1230gbuxGfcC"); // keys that say something of the transcript on screen
const underway = () => (going && going !== now.n) || (leaving && !away);

addEventListener("keydown", (event) => {
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
  if ($("categories").open) {
    const at = CATEGORY_KEYS.indexOf(event.key);
    if (event.key === "0" || (at >= 0 && at < KNOWN.categories.length)) {
      event.preventDefault();
      category(event.key === "0" ? null : KNOWN.categories[at]);
    }
    return;
  }
  if (document.querySelector("dialog[open]") || event.target.closest("input, textarea")) return;
  if (event.key === "Enter" && event.target.closest("button, summary") && event.target.matches(":focus-visible")) return;
  const action = now && Object.hasOwn(KEYS, event.key) && KEYS[event.key];
  if (!action || (event.repeat && !event.key.startsWith("Arrow") && !"jknp".includes(event.key))) return;
  event.preventDefault();
  flash("");
  if (OF_SCREEN.has(event.key) && underway()) return flash("Another transcript is on its way: press it again there");
  action();
});

$("goto-number").addEventListener("keydown", (event) => {
  if (event.key !== "Enter") return;
  event.preventDefault();
  const n = Number($("goto-number").value);
  $("goto").close();
  if (Number.isInteger(n) && n >= 1 && n <= now.total) load(n);
  else flash(`There is no transcript ${$("goto-number").value}`);
});
const shown = (action) => () => { if (now) { flash(""); action(); } };
const CLICKS = {
  back: KEYS.k, forth: KEYS.j, "comment-run": shown(KEYS.C), undo: shown(undo), "next-open": shown(KEYS.Enter), "help-open": KEYS["?"],
  "help-close": () => $("help").close(), "categories-leave": () => $("categories").close(), "comment-keep": keepComment, "comment-leave": leaveComment,
};
for (const [id, action] of Object.entries(CLICKS)) $(id).addEventListener("click", action);
// a click leaves the focus where the keys had it: Space and Enter do not press the button again
$("label").addEventListener("mousedown", (event) => { if (event.target.closest("button")) event.preventDefault(); });
// what another tab said meanwhile
document.addEventListener("visibilitychange", () => { if (!document.hidden && now && !waiting.length && !document.querySelector("dialog[open]")) load(now.n, step); });
// a page that is left sends what waits once more, all together: what arrives twice counts once
addEventListener("pagehide", () => { if (waiting.length) fetch("acts", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(waiting.map(({ act }) => act)), keepalive: true }).catch(() => {}); });

const [asked, askedStep] = location.hash.slice(1).split("/").map(Number);
get("start")
  .then(async (start) => {
    $("rater").textContent = `as ${start.rater}`;
    progress(start);
    if (!start.total) return trouble("There is no transcript to label.");
    send();
    await settled; // so that what is shown holds what an earlier page said
    began = version;
    return load(asked >= 1 && asked <= start.total ? asked : start.first, askedStep || null);
  })
  .catch((error) => trouble(error.message));
