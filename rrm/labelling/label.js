// The labelling page. Every action is kept in this browser, under the label file, until the server says that it is on the disk: neither a reload, nor a
// tab that is closed, nor a restart of `rrm label` loses any.

const KNOWN = JSON.parse($("known").textContent);
const WAITING = `rrm-label/${KNOWN.file}/`; // begins the name of each action's entry: tabs keep theirs side by side
const DRAFT = `rrm-label-draft/${KNOWN.file}`;
const PAGE = crypto.randomUUID(); // who acts: what other pages said meanwhile and this one does not show is not overwritten
const AGAIN_MS = 1000;
const STALE = 409; // another tab said something of it that this one does not show
const ELSEWHERE = 410; // of a transcript that is not among these: kept for when it is
const NEVER = new Set([400, STALE, ELSEWHERE, 413]); // an action that was refused so is not taken by asking again

const OUTCOMES = [["good", "1", "good"], ["bad", "2", "bad"], ["unsure", "3", "warn"]];
const VERDICTS = [["good", "g", "good"], ["bad", "b", "bad"], ["unclear", "u", "warn"]];
const highlight = () => {}; // nothing is searched here
const main = $("main");
let now = null; // the transcript on screen: {n, digest, id, steps, view, said, version}
let version = 0; // how far this page has heard of what was said
let step = 0; // the step that keys speak of; 0: none
let turn = 0; // of transcripts asked for: only the last one is shown

const stored = (name) => { try { return JSON.parse(sessionStorage.getItem(name)); } catch { return null; } };
const store = (name, value) => (value === null ? sessionStorage.removeItem(name) : sessionStorage.setItem(name, JSON.stringify(value)));

// Talking to the server

/** What was not sent of this file, by whichever tab, in its order; what two tabs send counts once. */
function kept() {
  const names = Object.keys(localStorage).filter((name) => name.startsWith(WAITING)).sort();
  const found = names.map((name) => { try { return { ...JSON.parse(localStorage.getItem(name)), name }; } catch { return {}; } });
  return found.filter(({ act }) => act);
}

const waiting = kept(); // {act, n, name}: what is posted, the transcript's number, and the entry it is kept under
let acted = 0;
let settle;
const settled = new Promise((done) => (settle = done)); // what an earlier page left was sent, or cannot be just now
let sending = false;

async function get(path) {
  const reply = await fetch(path, { cache: "no-store" });
  const body = await reply.json();
  if (!reply.ok) throw new Error(body.error);
  return body;
}

let away = ""; // why nothing can be read or saved just now
let refusal = ""; // what was not taken; until the next action

function tellTrouble() {
  $("trouble").hidden = !away && !refusal;
  $("trouble").textContent = [refusal, away].filter(Boolean).join(" ");
}

function trouble(text) {
  away = text;
  tellTrouble();
}

function act(action, seen) {
  refusal = "";
  tellTrouble();
  const id = crypto.randomUUID();
  const name = `${WAITING}${String(Date.now()).padStart(15, "0")}-${String(acted++).padStart(6, "0")}-${id}`;
  const one = { act: { action: id, page: PAGE, seen, ...action }, n: now?.n };
  waiting.push({ ...one, name });
  try { localStorage.setItem(name, JSON.stringify(one)); } catch { flash("This browser keeps nothing: leave the tab open until it says Saved"); }
  send();
}

/** Send what waits, in its order, until nothing does. */
async function send() {
  if (sending) return;
  sending = true;
  while (waiting.length) {
    $("saved").textContent = "Saving…";
    let reply, body;
    try {
      reply = await fetch("act", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(waiting[0].act), keepalive: true });
      body = await reply.json();
    } catch {
      await later(`rrm label does not answer: ${count(waiting.length, "action")} not saved yet. Start it again with the same command: this page goes on by itself.`);
      continue;
    }
    if (!reply.ok && !NEVER.has(reply.status)) { // the disk is full, or it was started anew under another address: kept here until it can be saved
      await later(`Not saved yet: ${body.error}`);
      continue;
    }
    const sent = waiting.shift();
    if (reply.status !== ELSEWHERE) localStorage.removeItem(sent.name);
    trouble("");
    if (reply.ok) answered(sent.act, body);
    else await refused(sent, reply.status, body.error);
  }
  sending = false;
  settle();
  $("saved").textContent = refusal ? "Not taken" : "Saved";
}

async function later(why) {
  trouble(why);
  settle();
  await new Promise((again) => setTimeout(again, AGAIN_MS));
}

/** Say what was not taken, and show how things stand; a comment is not lost, it is offered again. */
async function refused({ act, n }, status, why) {
  const { change } = act;
  const where = n && n !== now?.n ? ` of transcript ${n}` : "";
  const then = { [STALE]: " Here it is as it stands: say again what you meant.", [ELSEWHERE]: " It stays in this browser until it is." }[status] || "";
  if (status === STALE && change?.value && (change.field === "comment" || change.field === "step_comment"))
    store(DRAFT, { digest: act.digest, step: change.step ?? null, text: change.value });
  if (now) await load(now.n, step);
  refusal = `Not taken${where}: ${why}.${then}`;
  tellTrouble();
}

function answered(sent, body) {
  progress(body);
  if (sent.undo && !body.undone) return flash("Nothing to undo");
  if (sent.undo) flash("Undone");
  if (sent.undo && body.n && body.digest !== now?.digest) return load(body.n);
  if (body.digest === now?.digest && !waiting.length) {
    now.said = body.said;
    now.version = body.version;
    draw();
  }
}

/** What a key did not do, or what was undone: until the next key. */
function flash(text) {
  $("hint").textContent = text;
}

function progress({ done, total, version: heard }) {
  version = Math.max(version, heard);
  $("progress").value = total ? done / total : 0;
  $("done").textContent = `${whole.format(done)} of ${whole.format(total)} done`;
}

// One transcript

async function load(n, at = null) {
  const mine = ++turn;
  let item;
  try {
    item = await get(`item/${n}`);
  } catch (error) {
    trouble(error instanceof TypeError ? "rrm label does not answer. Start it again with the same command; what was saved is kept." : error.message);
    return;
  }
  if (mine !== turn) return;
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
  const draft = stored(DRAFT);
  if (draft && draft.digest === now.digest && !$("comment").open) comment(draft.step, draft.text);
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

function choice(chosen, [value, key, mark], label, onclick) {
  return h("button", { type: "button", class: `choice ${value}`, "aria-pressed": String(chosen === value), onclick }, icon(mark), label, h("kbd", null, key));
}

const fill = (el, ...children) => el.replaceChildren(...children.filter((child) => child !== null));

function draw() {
  const { said, steps } = now;
  for (let k = 1; k <= steps; k++) {
    const one = said.steps[k] || {};
    $(`step-${k}`).className = `step ${one.verdict || ""}`;
    const place = $(`said-${k}`);
    fill(place,
      h("div", { class: "choices", role: "group", "aria-label": `Step ${k}` }, ...VERDICTS.map((v) => choice(one.verdict, v, v[0], () => { choose(k, false); verdict(v[0]); }))),
      one.category ? h("p", { class: "tag" }, one.category) : null,
      one.comment ? h("p", { class: "text note" }, one.comment) : null,
      one.comment && !one.verdict && !one.category ? h("p", { class: "note unsaid" }, icon("warn"), " In no label yet: say whether the step was good, bad or unclear.") : null,
    );
  }
  fill($("outcome"),
    h("span", { class: "muted" }, KNOWN.ask === "steps" ? "Outcome (not asked for)" : "Did the run do what was asked?"),
    h("div", { class: "choices", role: "group", "aria-label": "Outcome" }, ...OUTCOMES.map((o) => choice(said.outcome, o, o[0], () => outcome(o[0])))),
    said.comment ? h("p", { class: "text note" }, said.comment) : null,
  );
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
  act({ digest: now.digest, change }, now.version);
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

function comment(k, text = null) {
  if (k === null || k <= now.steps) {
    $("comment").of = { digest: now.digest, step: k };
    $("comment-title").textContent = k === null ? "Comment on the run" : `Comment on step ${k}`;
    $("comment-text").value = text ?? (k === null ? now.said.comment : now.said.steps[k]?.comment || "");
    $("comment").showModal();
    $("comment-text").focus();
  }
}

function keepComment() {
  const { digest, step: k } = $("comment").of;
  const text = $("comment-text").value.trim();
  store(DRAFT, null);
  $("comment").close();
  if (digest === now.digest) say(k === null ? "comment" : "step_comment", text || null, k);
}

$("comment-text").maxLength = KNOWN.most_chars;
$("comment-text").addEventListener("input", () => store(DRAFT, { ...$("comment").of, text: $("comment-text").value }));
$("comment-text").addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  keepComment();
});
$("comment").addEventListener("cancel", () => store(DRAFT, null));

// Keys

const move = (by) => { const n = now.n + by; if (n >= 1 && n <= now.total) load(n); else flash(by > 0 ? "This is the last transcript" : "This is the first transcript"); };

/** What is still to be said of the transcript on screen; "": it is done. Goes to the first step that lacks a verdict. */
function missing() {
  if (KNOWN.ask !== "steps" && !now.said.outcome) return "No outcome yet: 1 good, 2 bad, 3 unsure";
  const open = KNOWN.ask === "outcome" ? [] : Array.from({ length: now.steps }, (_, i) => i + 1).filter((k) => !now.said.steps[k]?.verdict);
  if (open.length) choose(open[0]);
  return open.length ? `No verdict yet on ${count(open.length, "step")}` : "";
}

async function nextOpen() {
  const lacks = missing();
  if (lacks) return flash(`${lacks}; j goes on without`);
  const from = now.digest;
  while (waiting.length) { // what is done is known when everything is saved
    await new Promise((again) => setTimeout(again, 10));
  }
  if (refusal || now.digest !== from) return; // it is not done after all, or another was asked for meanwhile
  const { n } = await get(`open/${now.n}`);
  if (n) load(n);
  else flash("All are done");
}

const part = (k) => (k ? $(`step-${k}`) : main);
const more = (k) => unfold(part(k)) || flash(k ? `Nothing is cut short in step ${k}` : "Nothing is cut short");
function ends() {
  const found = part(step).querySelectorAll(".ending");
  for (const ending of found) ending.click();
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
  m: () => more(step), M: () => more(0), e: ends, z: () => act({ undo: true }, version),
  "/": () => { $("goto-number").value = ""; $("goto").showModal(); },
  "?": () => $("help").showModal(),
};

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
$("help-open").addEventListener("click", () => $("help").showModal());
$("help-close").addEventListener("click", () => $("help").close());
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
    return load(asked >= 1 && asked <= start.total ? asked : start.first, askedStep || null);
  })
  .catch((error) => trouble(error.message));
