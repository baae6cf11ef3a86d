// The filters' and the order's controls, and the search as it is typed. Each changes `query`, then the list is drawn again.

let textHits = new Uint8Array(total);
let progress = 1;

function refresh(keep = false) {
  const { beside, order } = select(textHits);
  setOrder(order, keep);
  drawHistogram(beside);
  drawAgreement();
  describe();
  keepAddress();
}

function describe() {
  const shown = list.order.length;
  const searching = progress < 1 ? ` · searching transcripts, ${Math.floor(progress * 100)}%` : "";
  $("tally").textContent = (filtering() ? `${whole.format(shown)} of ${count(total, "transcript")}` : count(total, "transcript")) + searching;
  $("clear").hidden = !filtering();
  $("unfold").classList.toggle("used", narrowed().length > 0);
  $("empty").hidden = shown > 0;
  $("empty").textContent = total ? "No transcript passes these filters." : "This report has no transcripts: nothing was judged.";
  $("export-csv").disabled = $("export-jsonl").disabled = shown === 0;
  $("exported").textContent = "";
  list.el.hidden = shown === 0;
  $("columns").hidden = total === 0;
}

// Search

let typing = 0;
$("search").addEventListener("input", () => {
  setText($("search").value);
  refresh();
  highlight();
  clearTimeout(typing);
  if (progress < 1) typing = setTimeout(startSearch, 250);
});

/** Another search text: no transcript has been looked into yet. */
function setText(text) {
  query.text = text;
  textHits = new Uint8Array(total);
  progress = termsOf(text).length ? 0 : 1;
  scan++;
}

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

// Filters

function setRange(low, high) {
  query.low = low;
  query.high = high;
  showFilters();
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

for (const field of ["verdict", "outcome", "judged", "answer"]) {
  $(field).addEventListener("change", () => {
    query[field] = $(field).value;
    refresh();
  });
}
$("answer").append(...Object.keys(ANSWERS).map((said) => h("option", { value: said }, rows.failures ? words(said.replace(/: yes$/, "")) : said)));
if (rows.failures) $("answer-name").textContent = "Kind";
for (const label of document.querySelectorAll("[data-needs]")) label.hidden = !KNOWN[label.dataset.needs];

function toggleStatus(status) {
  if (!query.statuses.delete(status)) query.statuses.add(status);
  showFilters();
  refresh();
}

/** The controls say what `query` says. */
function showFilters() {
  for (const chip of document.querySelectorAll(".chip")) chip.setAttribute("aria-pressed", query.statuses.has(chip.dataset.status));
  for (const field of ["verdict", "outcome", "judged", "answer"]) $(field).value = query[field];
  $("min").value = query.low ?? "";
  $("max").value = query.high === null ? "" : Math.round(query.high * 100) / 100;
  if ($("search").value !== query.text) $("search").value = query.text;
  showSort();
}

$("clear").addEventListener("click", () => {
  const { sort, descending, from } = query;
  Object.assign(query, { ...UNASKED, sort, descending, from, statuses: new Set() });
  setText("");
  showFilters();
  refresh();
  highlight();
  list.el.focus();
});

$("unfold").addEventListener("click", () => {
  const open = $("fields").classList.toggle("open");
  $("side").classList.toggle("open", open);
  $("unfold").setAttribute("aria-expanded", open);
});

// Sorting: column heads where there is room, and a menu, which has the orders without a column, too

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

for (const [name, { label, words }] of Object.entries(SORTS)) {
  words.forEach((said, k) => $("sort").append(h("option", { value: `${name} ${k === 0}` }, `${label}, ${said}`)));
}
for (const { sort, label } of CELLS_SHOWN) {
  $("columns").append(h("button", { type: "button", class: `head ${sort}`, "data-sort": sort, onclick: () => sortBy(sort) }, label ?? SORTS[sort].label));
}
$("sort").addEventListener("change", () => {
  const [, name, descending] = /^(.*) (true|false)$/.exec($("sort").value);
  Object.assign(query, { sort: name, descending: descending === "true" });
  showSort();
  refresh();
});

// The address

let settling = 0;
/** Put the filters into the address once they have come to rest: browsers stop a page that writes it at every key. */
function keepAddress() {
  clearTimeout(settling);
  settling = setTimeout(() => {
    const { row, step, place, filters: now } = parseHash(location.hash);
    const filters = filtersText();
    const wanted = row === undefined ? `#${place}${filters ? `?${filters}` : ""}` : addressOf(row, step, row === null ? null : besideOf(row, now));
    if (wanted !== (location.hash || "#")) history.replaceState(null, "", wanted);
  }, 300);
}

/** Take the filters of an address, unless they are those that are set already. */
function takeFilters(text) {
  const asked = readFilters(text);
  const before = filtersText();
  const searched = asked.text !== query.text;
  const was = { ...query };
  Object.assign(query, asked);
  if (filtersText() === before) return void Object.assign(query, was);
  if (searched) setText(asked.text);
  showFilters();
  refresh();
  if (searched && progress < 1) startSearch();
}
