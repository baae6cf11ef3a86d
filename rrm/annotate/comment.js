// Comments: what is typed is kept in this tab until it is said. Needs `guarded` and `act` (actions.js).

const DRAFT = `rrm-label-draft/${KNOWN.file}`;

// Comments that are not sent, of this tab: half written, or refused
const drafts = new Map(guarded(() => Object.entries(JSON.parse(sessionStorage.getItem(DRAFT)) || {}), []).filter(([, one]) => one?.digest));

/** Keep the text of a comment that is no action yet; null: it is one now, or not wanted. */
function draft({ digest, step: k }, text) {
  const name = `${digest}/${k ?? ""}`;
  if (text === null) drafts.delete(name);
  else drafts.set(name, { digest, step: k, text });
  guarded(() => sessionStorage.setItem(DRAFT, JSON.stringify(Object.fromEntries(drafts))));
}

/** Open a comment on the transcript on screen that was not sent. */
function offer() {
  const one = !document.querySelector("dialog[open]") && [...drafts.values()].find(({ digest }) => digest === now.digest);
  if (one) comment(one.step, one.text);
}

function comment(k, text = null) {
  if (k === null || k <= now.steps) {
    $("comment").of = { digest: now.digest, step: k, n: now.n, version: now.version };
    $("comment-title").textContent = k === null ? "Comment on the run" : `Comment on step ${k}`;
    $("comment-text").value = text ?? (k === null ? now.said.comment : now.said.steps[k]?.comment || "");
    $("comment").showModal();
    $("comment-text").focus();
  }
}

function keepComment() {
  const { of } = $("comment");
  const [field, value, k] = [of.step === null ? "comment" : "step_comment", $("comment-text").value.trim() || null, of.step];
  draft(of, null);
  $("comment").close();
  if (of.digest === now.digest) return say(field, value, k);
  act({ digest: of.digest, change: { field, value, ...(k === null ? {} : { step: k }) } }, of); // another came on screen meanwhile
}

function leaveComment() {
  draft($("comment").of, null);
  $("comment").close();
}

$("comment-text").maxLength = KNOWN.most_chars;
$("comment-text").addEventListener("input", () => draft($("comment").of, $("comment-text").value));
$("comment-text").addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  keepComment();
});
$("comment").addEventListener("cancel", () => draft($("comment").of, null));
$("comment").addEventListener("close", offer); // the next, where several were refused
