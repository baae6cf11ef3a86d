// Wiring: list to transcript, addresses, keys.

const main = $("main");
let returnTo = null; // the list's scroll position before a transcript was opened
const heading = document.title;

function go(address, replace = false) {
  history[replace ? "replaceState" : "pushState"](null, "", address);
  route().catch(explain);
}

let opening = 0;
async function route() {
  const address = parseHash(location.hash);
  const mine = ++opening;
  takeFilters(address.filters ?? "");
  if (address.row === null) return close();
  if (address.row === undefined) return notice(`No transcript in this report has the id “${decoded(address.place)}”.`);
  const beside = besideOf(address.row, address.filters);
  if (address.row !== list.open || beside !== list.beside) {
    const [d, other] = await Promise.all([detailOf(address.row), beside === null ? null : detailOf(beside)]);
    if (mine !== opening) return;
    show(address.row, d, beside, other);
  }
  if (address.step) focusStep(address.step);
}

function openMain() {
  if (main.hidden) returnTo = list.el.scrollTop;
  main.hidden = false;
  document.body.classList.add("reading");
}

function show(row, d, beside, other) {
  list.open = row;
  list.beside = beside;
  const position = list.order.indexOf(row);
  openMain();
  main.replaceChildren(beside === null ? transcriptView(row, d, placeBar(position)) : besideView(row, d, beside, other, placeBar(position)));
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
    h("button", { type: "button", class: "quiet back", onclick: () => go(addressOf(null)) }, icon("back"), h("span", null, "All", h("span", { class: "wide" }, " transcripts"))),
    h("span", { class: "muted num" }, position < 0 ? "outside the filters" : `${whole.format(position + 1)} of ${whole.format(list.order.length)}`),
    position < 0 ? null : step(-1, "Previous"),
    position < 0 ? null : step(1, "Next"),
  );
}

function close() {
  const reading = !main.hidden;
  list.open = -1;
  list.beside = null;
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
  go(addressOf(list.order[position]), list.open >= 0);
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
  go(addressOf(list.open, k), true);
}

function stepBy(by, onlyBad) {
  if (list.beside !== null) return differenceBy(by);
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
    else if (list.beside !== null) go(addressOf(list.open));
    else if (!main.hidden) go(addressOf(null));
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
Object.assign(query, readFilters(parseHash(location.hash).filters ?? ""));
setText(query.text);
showFilters();
refresh();
if (progress < 1) startSearch();
route().catch(explain);
