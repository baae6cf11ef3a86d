// Which rows are shown, in which order. `query` is the state; `select()` is a function of it and of the text hits.

const query = { text: "", statuses: new Set(), low: null, high: null, verdict: "any", sort: "score", descending: true };

const SORTS = {
  score: { label: "Score", key: (i) => rows.score[i], descending: true },
  id: { label: "Id", key: (i) => rows.id[i], descending: false },
  bad: { label: "Findings", key: (i) => rows.bad[i] * 1000 + rows.good[i], descending: true },
  steps: { label: "Steps", key: (i) => rows.steps[i], descending: true },
  chars: { label: "Length", key: (i) => rows.chars[i], descending: true },
  status: { label: "Status", key: (i) => STATUS[rows.status[i]], descending: false },
};

rows.questions.forEach((name, q) => {
  SORTS[`criterion ${q}`] = { label: name, key: (i) => rows.criteria[i]?.[q]?.[0] ?? null, descending: true };
});

/** A row's answer to the q-th question of its criteria, as text; null where there is none. */
const answerOf = (i, q) => {
  const answer = rows.criteria[i]?.[q];
  return answer ? answer[1] ?? score2(answer[0]) : null;
};
const answersOf = (i) => rows.questions.flatMap((name, q) => (answerOf(i, q) === null ? [] : `${name}: ${answerOf(i, q)}`)).join(" · ");

const VERDICTS = {
  any: () => true,
  bad: (i) => rows.bad[i] > 0,
  good: (i) => rows.good[i] > 0 && rows.bad[i] === 0,
  none: (i) => rows.good[i] + rows.bad[i] === 0,
};

const inRange = (i) => {
  if (query.low === null && query.high === null) return true;
  const score = rows.score[i];
  return score !== null && score >= (query.low ?? 0) - 1e-9 && score <= (query.high ?? 1) + 1e-9;
};
const inStatus = (i) => query.statuses.size === 0 || query.statuses.has(rows.status[i]);

const filtering = () =>
  Boolean(query.text.trim() || query.statuses.size || query.low !== null || query.high !== null || query.verdict !== "any");

/** Words and "quoted phrases", lower case; a row must contain them all. */
const termsOf = (text) => Array.from(text.toLowerCase().matchAll(/"([^"]+)"|[^\s"]+/g), (m) => m[1] ?? m[0]);

const labels = []; // row → what the list itself says of it, lower case, made when first searched
const labelOf = (i) => (labels[i] ??= `${rows.id[i]}\n${rows.task[i]}\n${rows.note[i]}\n${answersOf(i)}`.toLowerCase());

/** Rows that pass every filter but the score range (the histogram's), and those of them inside it, sorted. */
function select(textHits) {
  const terms = termsOf(query.text);
  const passes = (i) =>
    inStatus(i) && VERDICTS[query.verdict](i) && (terms.length === 0 || textHits[i] || terms.every((t) => labelOf(i).includes(t)));
  const beside = [];
  for (let i = 0; i < total; i++) if (passes(i)) beside.push(i);
  return { beside, order: sorted(beside.filter(inRange)) };
}

const natural = new Intl.Collator("en", { numeric: true });

/** Rows by the chosen key; rows without one (unscored) stay last in either direction, ties keep the input's order. */
function sorted(indices) {
  const { key } = SORTS[query.sort];
  const sign = query.descending ? -1 : 1;
  return indices.sort((a, b) => {
    const x = key(a);
    const y = key(b);
    if (x === null || y === null) return (x === null) - (y === null) || a - b;
    return sign * (typeof x === "string" ? natural.compare(x, y) : x - y) || a - b;
  });
}

function* strings(value) {
  if (typeof value === "string") yield value;
  else if (value && typeof value === "object") for (const inner of Object.values(value)) yield* strings(inner);
}

let scan = 0; // number of the newest search: an older one stops when it sees a newer

/** Search the transcripts themselves, block by block; `report(hits, share done)` after each block, share 1 at the end. */
async function searchTranscripts(text, report) {
  const mine = ++scan;
  const terms = termsOf(text);
  const hits = new Uint8Array(total);
  for (let block = 0; terms.length && block < firstOfBlock.length; block++) {
    const lines = await unpack(block);
    if (mine !== scan) return;
    lines.forEach((line, k) => {
      const row = firstOfBlock[block] + k;
      const { judge, source, ...said } = JSON.parse(line);
      const haystack = labelOf(row) + "\n" + Array.from(strings(said)).join("\n").toLowerCase();
      if (terms.every((term) => haystack.includes(term))) hits[row] = 1;
    });
    report(hits, (block + 1) / firstOfBlock.length);
    await new Promise((next) => setTimeout(next)); // let the page draw and take keys between blocks
    if (mine !== scan) return;
  }
}
