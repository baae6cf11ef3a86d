// What a rater says on its way to the label file. Every action is kept in this browser, under the label file, until the server says that it is on the disk:
// neither a reload, nor a tab that is closed, nor a restart of `rrm label` loses any.

const KNOWN = JSON.parse($("known").textContent);
const WAITING = `rrm-label/${KNOWN.file}/`; // begins the name of each action's entry: tabs keep theirs side by side
const PAGE = crypto.randomUUID(); // who acts: what other pages said meanwhile and this one does not show is not overwritten
const AGAIN_MS = 1000;
const STALE = 409; // another tab said something of it that this one does not show
const ELSEWHERE = 410; // of a transcript that is not among these: kept for when it is
const NEVER = new Set([400, STALE, ELSEWHERE, 413]); // an action that was refused so is not taken by asking again

let version = 0; // how far this page has heard of what was said
let last = null; // the change that undoing would take back: {number, page, n}; null: none stands
let began = 0; // how far things had come when this page began

/** What a browser keeps, or `otherwise`: where storage is blocked every touch of it throws. */
const guarded = (touch, otherwise = null) => { try { return touch(); } catch { return otherwise; } };
const forget = (name) => guarded(() => localStorage.removeItem(name));

// Talking to the server

/** What was not sent of this file, by whichever tab, in its order; what two tabs send counts once. */
function kept() {
  const names = guarded(() => Object.keys(localStorage).filter((name) => name.startsWith(WAITING)).sort(), []);
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
const refusals = []; // what was not taken, each in a sentence; until the next action

function tellTrouble() {
  $("trouble").hidden = !away && !refusals.length;
  $("trouble").textContent = [...refusals, away].filter(Boolean).join(" ");
}

function seen() {
  refusals.length = 0;
  tellTrouble();
}

function trouble(text) {
  away = text;
  tellTrouble();
}

function act(action, { n, version: known }) {
  seen();
  const id = crypto.randomUUID();
  const name = `${WAITING}${String(Date.now()).padStart(15, "0")}-${String(acted++).padStart(6, "0")}-${id}`;
  const one = { act: { action: id, page: PAGE, seen: known, ...action }, n };
  waiting.push({ ...one, name });
  try { localStorage.setItem(name, JSON.stringify(one)); } catch { flash("This browser keeps nothing: leave the tab open until it says Saved"); }
  send();
}

/** Number of the change that a page's undo means, the last: its own, or one that it shows or that stood when it began; 0: none of these. */
function meant(page) {
  const known = last && (last.page === page || last.number <= began || (last.n === now?.n && last.number <= now.version));
  return known ? last.number : 0;
}

// what is before it in the queue is not known to stand yet: `send` says then what is meant
const undo = () => act(waiting.length ? { undo: true } : { undo: true, undoes: meant(PAGE) }, { n: now.n, version });

/** Send what waits, in its order, until nothing does. */
async function send() {
  if (sending) return;
  sending = true;
  try {
    while (waiting.length) {
      $("saved").textContent = "Saving…";
      let reply, body;
      const { act: next } = waiting[0];
      if (next.undo) next.undoes ??= meant(next.page);
      try {
        reply = await fetch("act", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(next), keepalive: true });
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
      if (reply.status !== ELSEWHERE || next.undo) forget(sent.name);
      trouble("");
      if (reply.ok) answered(sent.act, body);
      else await refused(sent, reply.status, body);
    }
  } finally {
    sending = false; // also where a transcript could not be drawn: what waits is still sent
  }
  settle();
  $("saved").textContent = refusals.length ? "Not taken" : "Saved";
}

async function later(why) {
  trouble(why);
  settle();
  await new Promise((again) => setTimeout(again, AGAIN_MS));
}

/** Say what was not taken, and show how things stand; a comment is not lost, it is offered again. */
async function refused({ act: { change, digest, undo: undoing }, n }, status, body) {
  if (body.last !== undefined) progress(body);
  if (undoing) {
    const to = status === STALE ? body.last?.n : null;
    refusals.push(`Not undone: ${body.error}.${to ? ` Transcript ${to} holds it: undo (z) takes it back from here.` : ""}`);
    tellTrouble();
    if (now && !going) await load(to ?? now.n, to && to !== now.n ? null : step);
    return;
  }
  dropUndo();
  const elsewhere = n && n !== now?.n;
  const again = elsewhere ? " Say again there what you meant." : " Here it is as it stands: say again what you meant.";
  const then = { [STALE]: again, [ELSEWHERE]: " It stays in this browser until it is." }[status] || "";
  const of = { digest, step: change?.step ?? null };
  const typing = $("comment").open && $("comment").of.digest === digest && $("comment").of.step === of.step; // that is newer
  if (status === STALE && change?.value && (change.field === "comment" || change.field === "step_comment") && !typing) draft(of, change.value);
  refusals.push(`Not taken${elsewhere ? ` of transcript ${n}` : ""}: ${body.error}.${then}`);
  tellTrouble();
  if (now && !going) await load(now.n, step);
}

/** An undo that waits behind a change that was refused has nothing to take back. */
function dropUndo() {
  let changes = 0;
  const at = waiting.findIndex(({ act: { undo: undoing } }) => (undoing ? changes-- === 0 : void changes++));
  if (at >= 0) forget(waiting.splice(at, 1)[0].name);
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
