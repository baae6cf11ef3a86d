// The page's state as an address, all of it behind the `#`, which stays in the reader's browser and works for a file too:
// `#id/step?filters`. Back, forward and a link that is passed on then show the same transcript among the same rows.

/** Filters that are a choice of a fixed list. */
const CHOICES = { findings: ["verdict", VERDICTS], outcome: ["outcome", OUTCOMES], judged: ["judged", JUDGED], answer: ["answer", ANSWERS] };
const BOUNDS = { min: "low", max: "high", from: "from" };

/** The filters, search and order that are set, as `name=value&…`; empty where all are as the page opens. */
function filtersText() {
  const found = new URLSearchParams();
  if (query.text.trim() && wellFormed(query.text)) found.set("q", query.text);
  if (query.statuses.size) found.set("status", Array.from(query.statuses).join(","));
  for (const [name, [field]] of Object.entries(CHOICES)) if (query[field] !== UNASKED[field]) found.set(name, query[field]);
  for (const [name, field] of Object.entries(BOUNDS)) if (query[field] !== UNASKED[field]) found.set(name, query[field]);
  if (query.sort !== UNASKED.sort || query.descending !== UNASKED.descending) found.set("sort", (query.descending ? "-" : "") + query.sort);
  return found.toString();
}

const unit = (text) => (text === null || text.trim() === "" || !(Number(text) >= 0 && Number(text) <= 1) ? null : Number(text));

/** What an address asks for; a name or a value that this page does not know is as if it were not there. */
function readFilters(text) {
  const asked = new URLSearchParams(text);
  const found = { ...UNASKED, text: asked.get("q") ?? "" };
  for (const [name, [field, known]] of Object.entries(CHOICES)) if (Object.hasOwn(known, asked.get(name))) found[field] = asked.get(name);
  for (const [name, field] of Object.entries(BOUNDS)) found[field] = unit(asked.get(name)) ?? UNASKED[field];
  const [, minus, name] = /^(-?)(.*)$/.exec(asked.get("sort") ?? "") ?? [];
  if (Object.hasOwn(SORTS, name)) Object.assign(found, { sort: name, descending: minus === "-" });
  found.statuses = new Set((asked.get("status") ?? "").split(",").filter((status) => Object.hasOwn(STATUS, status)));
  return found;
}

/**
 * `#id/step?filters` in its parts. What this page writes is encoded, so a bare `/` or `?` is a mark of its own, and is tried first: with
 * the ids `a` and `a/1`, `#a/1` is a step and `#a%2F1` a transcript. An id typed by hand may hold them itself.
 */
function parseHash(hash) {
  const text = hash.replace(/^#/, "");
  const [, place, filters] = /^([^?]*)(?:\?(.*))?$/s.exec(text);
  if (!place) return { row: text && findRow(text) !== undefined ? findRow(text) : null, step: null, filters: filters ?? "" };
  const [, id, step] = /^([^/]*)\/(\d+)$/.exec(place) || [];
  if (id !== undefined && findRow(id) !== undefined) return { row: findRow(id), step: Number(step), filters: filters ?? "" };
  if (findRow(place) === undefined && findRow(text) !== undefined) return { row: findRow(text), step: null, filters: null };
  return { row: findRow(place), step: null, place, filters: filters ?? "" };
}

/** The row that the one at an address is to stand beside; null where it stands alone. */
function besideOf(row, filters) {
  const other = findRow(new URLSearchParams(filters).get("with") ?? "");
  return other === undefined || other === row || rows.group[other] !== rows.group[row] ? null : other;
}

/** The address of a row (null: of the list), at a step or beside another attempt, among the rows that are shown now. */
function addressOf(row, step = null, beside = null) {
  const filters = [beside === null ? "" : `with=${hashOf(beside).slice(1)}`, filtersText()].filter(Boolean).join("&");
  return (row === null || row < 0 ? "#" : hashOf(row)) + (step === null ? "" : `/${step}`) + (filters ? `?${filters}` : "");
}
