// The list. Only the rows in view (and a few around them) exist: a pool of elements is refilled as it scrolls.

const ROW = 56; // pixels; style.css has the same
const AROUND = 6;
const PRINTED = 300;

const list = { order: [], active: 0, open: -1, beside: null, version: 0, pool: [], el: $("list"), inner: h("div", { class: "rows", role: "presentation" }) };
list.el.append(list.inner);

/** The columns: what sorts by them, their width where there is room for columns, and what fills a cell (null: `fillRow`). */
const CELLS_SHOWN = [
  { sort: "score", label: "Score, 0–1", width: "40px 104px" },
  { sort: "id", label: "Transcript", width: "minmax(0, 1fr)" },
  { sort: "second", width: "40px", fill: (cell, i) => (cell.textContent = score2(rows.second[i])) },
  { sort: "outcome", width: "84px", fill: fillOutcome },
  { sort: "bad", label: rows.failures ? undefined : "Verdicts on steps", width: "118px" },
  { sort: "lowest", label: "Worst p(good)", width: "96px", fill: (cell, i) => (cell.textContent = score2(rows.lowest[i])) },
  { sort: "steps", width: "52px" },
  { sort: "chars", label: "Characters", width: "76px", fill: (cell, i) => (cell.textContent = short(rows.chars[i])) },
  { sort: "seconds", width: "72px", fill: (cell, i) => (cell.textContent = rows.seconds[i] === null ? "–" : duration(rows.seconds[i])) },
  { sort: "status", width: "108px" },
].filter(({ sort }) => SORTS[sort]);
$("side").style.setProperty("--columns", CELLS_SHOWN.map(({ width }) => width).join(" "));

function fillOutcome(cell, i) {
  const differs = agrees(i) === false;
  cell.replaceChildren(outcomeText(rows.outcome[i]), ...(differs ? [icon("differ")] : []));
  cell.title = differs ? WHAT.disagree : "";
}

function newRow() {
  const cell = (name) => h("span", { class: name });
  const parts = { score: cell("num score"), bar: scoreBar(null), task: cell("task"), id: cell("id"), bad: cell("mark bad"), good: cell("mark good"), weak: cell("mark weak"), unsure: cell("mark unsure") };
  for (const { sort } of CELLS_SHOWN) if (sort !== "bad") parts[sort] ??= cell(`num ${sort}`);
  const cells = CELLS_SHOWN.filter(({ sort }) => sort !== "score" && sort !== "id").map(({ sort }) => (sort === "bad" ? h("span", { class: "marks" }, parts.bad, parts.good, parts.weak, parts.unsure) : parts[sort]));
  const meta = h("span", { class: "meta" }, ...cells);
  const el = h("div", { class: "row", role: "option" }, KNOWN.score ? parts.score : null, KNOWN.score ? parts.bar : null, h("span", { class: "what" }, parts.task, parts.id), meta);
  return { el, parts, position: -1, version: -1 };
}

function mark(cell, name, n) {
  cell.replaceChildren(...(n ? [icon(name), String(n)] : []));
}

function fillRow(item, position) {
  const i = list.order[position];
  const { el, parts } = item;
  const scored = rows.status[i] === "scored";
  item.position = position;
  item.version = list.version;
  el.style.transform = `translateY(${position * ROW}px)`;
  el.classList.toggle("unscored", !scored);
  el.setAttribute("aria-posinset", position + 1);
  el.setAttribute("aria-setsize", list.order.length);
  el.setAttribute("aria-label", rowLabel(i));
  parts.score.textContent = score2(rows.score[i]);
  fillBar(parts.bar, rows.score[i]);
  parts.task.textContent = rows.task[i] || "(no task)";
  parts.id.textContent = [rows.id[i], scored ? answersOf(i) : rows.note[i]].filter(Boolean).join(" · ");
  mark(parts.bad, "bad", rows.bad[i]);
  mark(parts.good, "good", rows.good[i] - rows.weak[i]);
  mark(parts.weak, "weak", rows.weak[i]);
  mark(parts.unsure, "unsure", rows.unsure[i]);
  parts.weak.title = WEAK;
  parts.steps.textContent = rows.steps[i];
  parts.steps.classList.toggle("one", rows.steps[i] === 1);
  for (const { sort, fill } of CELLS_SHOWN) fill?.(parts[sort], i);
  const unread = scored && rows.coverage[i] !== null && rows.coverage[i] < READ;
  el.classList.toggle("unread", unread);
  const outside = scored && rows.outside[i] === true;
  el.classList.toggle("outside", outside);
  if (!KNOWN.status) return;
  parts.status.title = outside ? `This transcript is ${OUTSIDE}` : "";
  parts.status.replaceChildren(...(outside ? [icon("warn"), unread ? `outside, ${percent(rows.coverage[i])} read` : "outside"] : unread ? [icon("cut"), `${percent(rows.coverage[i])} read`] : scored ? [STATUS.scored] : [icon("warn"), STATUS[rows.status[i]]]));
}

function rowLabel(i) {
  const verdict = !KNOWN.status ? count(rows.bad[i], "mistake") : rows.score[i] === null ? `${STATUS[rows.status[i]]}, no score` : `score ${score2(rows.score[i])}`;
  const read = rows.coverage[i] !== null && rows.coverage[i] < READ ? `, ${percent(rows.coverage[i])} of it read` : "";
  const outside = rows.outside[i] ? `, ${OUTSIDE}` : "";
  const said = answersOf(i);
  const ended = rows.outcome[i] === null ? "" : `, outcome ${outcomeText(rows.outcome[i])}${agrees(i) === false ? `: ${WHAT.disagree}` : ""}`;
  return `${rows.task[i] || "no task"}, ${rows.id[i]}, ${verdict}${ended}${said ? `, ${said}` : ""}${read}${outside}, ${count(rows.bad[i], "bad finding")}${rows.unsure[i] ? `, ${rows.unsure[i]} unsure` : ""}, ${count(rows.steps[i], "step")}`;
}

function drawList() {
  const height = list.el.clientHeight || 600;
  const wanted = Math.min(list.order.length, Math.ceil(height / ROW) + 2 * AROUND);
  drawRows(Math.max(0, Math.floor(list.el.scrollTop / ROW) - AROUND), wanted);
}

function drawRows(start, wanted) {
  while (list.pool.length < wanted) {
    const item = newRow();
    item.el.id = `row-${list.pool.length}`;
    list.pool.push(item);
    list.inner.append(item.el);
  }
  const last = Math.min(list.order.length, start + wanted);
  const first = Math.max(0, last - wanted);
  const kept = new Set();
  for (let position = first; position < last; position++) {
    const item = list.pool[position % list.pool.length];
    kept.add(item);
    if (item.position !== position || item.version !== list.version) fillRow(item, position);
    item.el.hidden = false;
    item.el.classList.toggle("active", position === list.active);
    item.el.setAttribute("aria-selected", list.order[position] === list.open);
  }
  for (const item of list.pool) if (!kept.has(item)) item.el.hidden = true;
  const active = list.pool.length ? list.pool[list.active % list.pool.length] : null;
  if (active && active.position === list.active && !active.el.hidden) list.el.setAttribute("aria-activedescendant", active.el.id);
  else list.el.removeAttribute("aria-activedescendant");
}

/**
 * Show other rows. The open transcript stays active; with none open the list starts again at its top, unless `keep`
 * (a search still finding rows): then the active row stays where it is on the screen while others come in around it.
 */
function setOrder(order, keep) {
  const was = list.open >= 0 ? list.open : keep ? list.order[list.active] : -1;
  const shift = list.el.scrollTop - list.active * ROW;
  list.order = order;
  list.version++;
  list.inner.style.height = `${order.length * ROW}px`;
  const now = order.indexOf(was);
  list.active = Math.max(0, now);
  list.el.scrollTop = now < 0 ? 0 : keep ? now * ROW + shift : now * ROW - list.el.clientHeight / 2;
  drawList();
}

/** Make a position active and bring it into view. */
function setActive(position) {
  if (!list.order.length) return;
  list.active = Math.min(list.order.length - 1, Math.max(0, position));
  const top = list.active * ROW;
  const { scrollTop, clientHeight } = list.el;
  if (top < scrollTop) list.el.scrollTop = top;
  else if (top + ROW > scrollTop + clientHeight) list.el.scrollTop = top + ROW - clientHeight;
  drawList();
}

list.el.addEventListener("scroll", drawList, { passive: true });
new ResizeObserver(drawList).observe(list.el);
addEventListener("beforeprint", () => drawRows(0, Math.min(list.order.length, PRINTED)));
addEventListener("afterprint", drawList);
