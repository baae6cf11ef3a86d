// What is filtered, in the order that is shown, as a file: a table (CSV) or the judge's rows (JSONL). Nothing leaves the
// reader's machine: the file is made here and handed to the browser as a download.

/** Columns of the table; figures are numbers, everything else is text that someone else may have written. */
const TABLE = {
  id: (i) => rows.id[i],
  task: (i) => rows.task[i],
  question: (i) => rows.group[i],
  status: (i) => rows.status[i],
  score: (i) => rows.score[i],
  raw_score: (i) => rows.raw[i],
  outcome: (i) => rows.outcome[i],
  judge_and_outcome: (i) => (agrees(i) === null ? null : agrees(i) ? "agree" : "disagree"),
  steps: (i) => rows.steps[i],
  characters: (i) => rows.chars[i],
  seconds: (i) => rows.seconds[i],
  good_findings: (i) => rows.good[i],
  bad_findings: (i) => rows.bad[i],
  unsure_findings: (i) => rows.unsure[i],
  lowest_p_good: (i) => rows.lowest[i],
  coverage: (i) => rows.coverage[i],
  out_of_domain: (i) => rows.outside[i],
  note: (i) => rows.note[i],
};
rows.questions.forEach((name, q) => {
  TABLE[`criteria.${name}`] = (i) => rows.criteria[i]?.[q]?.[0] ?? null;
  TABLE[`criteria.${name}.label`] = (i) => rows.criteria[i]?.[q]?.[1] ?? null;
});

/** A cell. Text that a spreadsheet would take for a formula gets an apostrophe before it: a transcript must not compute. */
function csvCell(value) {
  if (value === null || value === undefined) return "";
  if (typeof value !== "string") return String(value);
  const text = /^[\s\p{Cc}\p{Cf}]*[=+\-@|%＝＋－＠]|^\p{Cc}/u.test(value) ? `'${value}` : value;
  return /[",;\t\r\n']/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

const csvOf = (order) => [Object.keys(TABLE), ...order.map((i) => Object.values(TABLE).map((cell) => cell(i)))].map((line) => line.map(csvCell).join(",") + "\r\n").join("");

/** A row as `rrm score` writes it, with the outcome and the question beside it. */
function rowOf(i, d) {
  const findings = (d.findings ?? []).map(([step, verdict, text, p]) => ({ step, verdict, ...(p === undefined ? {} : { p_good: p }), text }));
  return {
    id: rows.id[i], status: rows.status[i], score: rows.score[i], raw_score: rows.raw[i], trace: d.trace ?? null, critique: d.critique ?? null, findings,
    truncated_tokens: d.truncated_tokens ?? 0, coverage: rows.coverage[i], out_of_domain: rows.outside[i], domain_distance: d.distance ?? null,
    criteria: d.criteria ? Object.fromEntries(d.criteria.map(([name, label, value, why, steps]) => [name, { value, label, why, steps }])) : null,
    rank: d.rank ?? null, usage: d.usage ?? null, judge: d.judge, reason: d.reason ?? null, source: d.source ?? null,
    outcome: rows.outcome[i], task: d.task ?? "", question_id: d.question_id ?? null, seconds: rows.seconds[i],
  };
}

/** Lines in the order shown; blocks are unpacked one after another, each once. */
async function jsonlOf(order, report) {
  const found = new Array(order.length);
  const places = order.map((row, k) => [row, k]).sort(([a], [b]) => a - b);
  let [block, unpacked] = [-1, []];
  for (const [row, k] of places) {
    if (blockOf(row) !== block) {
      block = blockOf(row);
      unpacked = await unpack(block);
      report(block / firstOfBlock.length);
    }
    found[k] = JSON.stringify(rowOf(row, JSON.parse(unpacked[row - firstOfBlock[block]]))) + "\n";
  }
  return found;
}

function download(parts, name, type) {
  const address = URL.createObjectURL(new Blob(parts, { type }));
  h("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 60_000);
}

async function exportRows(kind) {
  const { order } = list;
  const button = $(`export-${kind}`);
  button.disabled = true;
  try {
    if (kind === "csv") download(["\ufeff", csvOf(order)], "transcripts.csv", "text/csv;charset=utf-8");
    else download(await jsonlOf(order, (share) => ($("exported").textContent = `Making the file, ${percent(share)}`)), "transcripts.jsonl", "application/jsonl");
    $("exported").textContent = `${count(order.length, "row")} exported`;
  } finally {
    button.disabled = false;
  }
}

for (const kind of ["csv", "jsonl"]) $(`export-${kind}`).addEventListener("click", () => exportRows(kind).catch(explain));
