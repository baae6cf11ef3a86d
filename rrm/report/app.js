// Wiring: filters to list, list to transcript, addresses, keys.

const main = $("main");
let textHits = new Uint8Array(total);
let progress = 1;
let returnTo = null; // the list's scroll position before a transcript was opened
const heading = document.title;

function refresh(keep = false) {
  const { beside, order } = select(textHits);
  setOrder(order, keep);
  drawHistogram(beside);
  describe();
}

function describe() {
  const shown = list.order.length;
  const searching = progress < 1 ? ` · searching transcripts, ${Math.floor(progress * 100)}%` : "";
  $("tally").textContent = (filtering() ? `${whole.format(shown)} of ${count(total, "transcript")}` : count(total, "transcript")) + searching;
  $("clear").hidden = !filtering();
  $("unfold").classList.toggle("used", query.verdict !== "any" || query.low !== null || query.high !== null);
  $("empty").hidden = shown > 0;
  $("empty").textContent = total ? "No transcript passes these filters." : "This report has no transcripts: nothing was judged.";
  list.el.hidden = shown === 0;
  $("columns").hidden = total === 0;
}

// Filters

let typing = 0;
$("search").addEventListener("input", () => {
  query.text = $("search").value;
  textHits = new Uint8Array(total);
  progress = termsOf(query.text).length ? 0 : 1;
  scan++;
  refresh();
  highlight();
  clearTimeout(typing);
  if (progress < 1) typing = setTimeout(startSearch, 250);
});

function startSearch() {
  let drawn = performance.now();
  searchTranscripts(query.text, (hits, done) => {
    progress = done;
    if (done < 1 && performance.now() - drawn < 200) return;
    drawn = performance.now();
    textHits = hits;
    refresh(true);
  }).catch(explain);
}

function setRange(low, high) {
  query.low = low;
  query.high = high;
  $("min").value = low ?? "";
  $("max").value = high === null ? "" : Math.round(high * 100) / 100;
  refresh();
}

const bound = (input) => (input.value === "" || !Number.isFinite(input.valueAsNumber) ? null : Math.min(1, Math.max(0, input.valueAsNumber)));
for (const id of ["min", "max"]) {
  $(id).addEventListener("input", () => {
    query.low = bound($("min"));
    query.high = bound($("max"));
    refresh();
  });
}

$("verdict").addEventListener("change", () => {
  query.verdict = $("verdict").value;
  refresh();
});

function toggleStatus(status) {
  if (!query.statuses.delete(status)) query.statuses.add(status);
  showStatuses();
  refresh();
}

function showStatuses() {
  for (const chip of document.querySelectorAll(".chip")) chip.setAttribute("aria-pressed", query.statuses.has(chip.dataset.status));
}

$("clear").addEventListener("click", () => {
  Object.assign(query, { text: "", verdict: "any" });
  query.statuses.clear();
  scan++;
  progress = 1;
  $("search").value = "";
  $("verdict").value = "any";
  showStatuses();
  setRange(null, null);
  highlight();
  list.el.focus();
});

$("unfold").addEventListener("click", () => {
  const open = $("fields").classList.toggle("open");
  $("unfold").setAttribute("aria-expanded", open);
});

// Sorting: column heads where there is room, a menu where there is not

function sortBy(name) {
  query.descending = query.sort === name ? !query.descending : SORTS[name].descending;
  query.sort = name;
  showSort();
  refresh();
}

function showSort() {
  $("sort").value = `${query.sort} ${query.descending}`;
  for (const button of $("columns").children) {
    const mine = button.dataset.sort === query.sort;
    button.classList.toggle("on", mine);
    button.classList.toggle("up", mine && !query.descending);
    button.setAttribute("aria-pressed", mine);
    button.setAttribute("aria-label", `Sort by ${SORTS[button.dataset.sort].label}${mine ? (query.descending ? ", now descending" : ", now ascending") : ""}`);
  }
  for (const button of document.querySelectorAll("[data-criterion]")) button.setAttribute("aria-pressed", button.dataset.criterion === query.sort);
}

const DIRECTIONS = { score: ["high first", "low first"], id: ["Z first", "A first"], bad: ["most bad first", "fewest first"], steps: ["most first", "fewest first"], chars: ["longest first", "shortest first"], status: ["Z first", "A first"] };
for (const [name, { label }] of Object.entries(SORTS)) {
  if (name in DIRECTIONS) $("columns").append(h("button", { type: "button", class: `head ${name}`, "data-sort": name, onclick: () => sortBy(name) }, name === "id" ? "Transcript" : label));
  (DIRECTIONS[name] ?? ["high first", "low first"]).forEach((words, k) => $("sort").append(h("option", { value: `${name} ${k === 0}` }, `${label}, ${words}`)));
}
$("sort").addEventListener("change", () => {
  const [, name, descending] = /^(.*) (true|false)$/.exec($("sort").value);
  Object.assign(query, { sort: name, descending: descending === "true" });
  showSort();
  refresh();
});

// Addresses: the hash says which transcript is open, so that back, forward and a shared link work

function go(hash, replace = false) {
  history[replace ? "replaceState" : "pushState"](null, "", hash || "#");
  route().catch(explain);
}

let opening = 0;
async function route() {
  const address = parseHash(location.hash);
  const mine = ++opening;
  if (!address) return close();
  if (address.row === undefined) return notice(`No transcript in this report has the id “${decoded(location.hash.slice(1))}”.`);
  if (address.row !== list.open) {
    const d = await detailOf(address.row);
    if (mine !== opening) return;
    show(address.row, d);
  }
  if (address.step) focusStep(address.step);
}

function openMain() {
  if (main.hidden) returnTo = list.el.scrollTop;
  main.hidden = false;
  document.body.classList.add("reading");
}

function show(row, d) {
  list.open = row;
  const position = list.order.indexOf(row);
  openMain();
  main.replaceChildren(transcriptView(row, d, placeBar(position)));
  main.scrollTop = 0;
  document.title = `${rows.id[row]} · ${heading}`;
  if (position >= 0) setActive(position);
  else drawList();
  main.focus({ preventScroll: true });
  highlight();
}

function placeBar(position) {
  const step = (by, label) => h("button", { type: "button", class: "quiet", disabled: position + by < 0 || position + by >= list.order.length, onclick: () => openAt(position + by) }, label);
  return h(
    "nav",
    { class: "place", "aria-label": "Transcripts" },
    h("button", { type: "button", class: "quiet back", onclick: () => go("") }, icon("back"), h("span", null, "All", h("span", { class: "wide" }, " transcripts"))),
    h("span", { class: "muted num" }, position < 0 ? "outside the filters" : `${whole.format(position + 1)} of ${whole.format(list.order.length)}`),
    position < 0 ? null : step(-1, "Previous"),
    position < 0 ? null : step(1, "Next"),
  );
}

function close() {
  const reading = !main.hidden;
  list.open = -1;
  main.hidden = true;
  main.replaceChildren();
  document.body.classList.remove("reading");
  document.title = heading;
  if (returnTo !== null) list.el.scrollTop = returnTo;
  returnTo = null;
  if (list.order.length) setActive(list.active);
  highlight();
  if (reading) list.el.focus({ preventScroll: true });
}

function notice(text) {
  list.open = -1;
  openMain();
  main.replaceChildren(placeBar(-1), h("p", { class: "empty", role: "alert" }, text));
}

function explain(error) {
  const old = typeof DecompressionStream === "undefined" ? "This browser is too old to unpack the transcripts. " : "";
  notice(`${old}The transcript could not be shown: ${error.message}`);
}

function openAt(position) {
  if (position < 0 || position >= list.order.length) return;
  setActive(position);
  go(hashOf(list.order[position]), list.open >= 0);
}

list.el.addEventListener("click", (event) => {
  const el = event.target.closest(".row");
  const item = list.pool.find((candidate) => candidate.el === el);
  if (item) openAt(item.position);
});

// Steps

let atStep = 0;
function focusStep(k) {
  const el = $(`step-${k}`);
  if (!el) return;
  atStep = k;
  for (const pill of main.querySelectorAll(".pill")) pill.toggleAttribute("aria-current", Number(pill.dataset.step) === k);
  el.scrollIntoView({ block: "start" });
  el.focus({ preventScroll: true });
}

function showStep(k) {
  go(`${hashOf(list.open)}/${k}`, true);
}

function stepBy(by, onlyBad) {
  const steps = rows.steps[list.open];
  let k = main.contains(document.activeElement) && document.activeElement.closest(".step") ? atStep + by : by > 0 ? 1 : 0;
  while (onlyBad && k <= steps && !$(`step-${k}`).classList.contains("bad")) k++;
  if (k >= 1 && k <= steps) showStep(k);
}

// Keys

const move = (to) => (list.open >= 0 ? openAt(to) : (setActive(to), list.el.focus({ preventScroll: true })));
const page = () => Math.max(1, Math.floor(list.el.clientHeight / ROW) - 1);
const KEYS = {
  j: () => move(list.active + 1),
  k: () => move(list.active - 1),
  Enter: () => openAt(list.active),
  "/": () => { $("search").focus(); $("search").select(); },
  "?": () => $("help").showModal(),
};
const LIST_KEYS = {
  ArrowDown: () => move(list.active + 1),
  ArrowUp: () => move(list.active - 1),
  Home: () => move(0),
  End: () => move(list.order.length - 1),
  PageDown: () => move(Math.min(list.order.length - 1, list.active + page())),
  PageUp: () => move(Math.max(0, list.active - page())),
};
const READING_KEYS = {
  n: () => stepBy(1, false),
  p: () => stepBy(-1, false),
  b: () => stepBy(1, true),
};

addEventListener("keydown", (event) => {
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || $("help").open) return;
  const target = event.target;
  const typingIn = target.closest("input, select, textarea");
  if (event.key === "Escape") {
    if (typingIn) list.el.focus();
    else if (!main.hidden) go("");
    return;
  }
  if (typingIn && !(target.id === "search" && (event.key === "Enter" || event.key === "ArrowDown"))) return;
  if (event.key === "Enter" && target.closest("button, a, summary")) return;
  if (typingIn) {
    list.el.focus();
    event.preventDefault();
    return;
  }
  const inList = main.hidden || $("side").contains(target);
  const action = KEYS[event.key] || (inList ? LIST_KEYS[event.key] : null) || (list.open >= 0 ? READING_KEYS[event.key] : null);
  if (!action) return;
  event.preventDefault();
  action();
});

$("help-open").addEventListener("click", () => $("help").showModal());
$("help-close").addEventListener("click", () => $("help").close());
addEventListener("popstate", () => route().catch(explain));

if (total) buildOverview();
else $("side").classList.add("nothing");
showSort();
refresh();
route().catch(explain);
