// Which rows are shown, in which order. `query` is the state; `select()` is a function of it and of the text hits.

/** A score from which on one calls a run good, as long as nobody says another; an outcome from this on is a success. */
const HALF = 0.5;
const has = (column) => rows[column].some((value) => value !== null);
const hasScores = !rows.failures || has("score"); // `rrm failures --model rules` gives none
const KNOWN = { score: hasScores, status: hasScores || rows.status.some((status) => status !== "scored"), outcome: has("outcome"), judged: hasScores && has("outcome"), second: Boolean(rows.comparison), answer: rows.questions.length > 0, seconds: has("seconds"), lowest: has("lowest") };

const UNASKED = { text: "", low: null, high: null, verdict: "any", outcome: "any", judged: "any", answer: "any", from: HALF, ...(KNOWN.score ? { sort: "score", descending: false } : { sort: "bad", descending: true }) };
const query = { ...UNASKED, statuses: new Set() };

const success = (i) => (rows.outcome[i] === null ? null : rows.outcome[i] >= HALF);
const judgedGood = (i) => (rows.score[i] === null ? null : rows.score[i] >= query.from);
/** Whether judge and outcome say the same; null where one of them says nothing, as a relative score does of a single run. */
const agrees = (i) => (rows.relative || success(i) === null || judgedGood(i) === null ? null : success(i) === judgedGood(i));
const apart = (i) => (rows.outcome[i] === null || rows.score[i] === null ? null : Math.abs(rows.score[i] - rows.outcome[i]));

/** How far two judges' scores are from one another. */
const gap = (i) => (rows.score[i] === null || rows.second[i] === null ? null : Math.abs(rows.second[i] - rows.score[i]));


/** What the list can be sorted by; `words` say both directions, the first is descending. */
const SORTS = {
  ...(KNOWN.score && { score: { label: "Score", key: (i) => rows.score[i], descending: false, words: ["high first", "low first"] } }),
  id: { label: "Id", key: (i) => rows.id[i], descending: false, words: ["Z first", "A first"] },
  ...(KNOWN.outcome && {
    outcome: { label: "Outcome", key: (i) => rows.outcome[i], descending: true, words: ["successes first", "failures first"] },
    ...(KNOWN.judged && !rows.relative && { apart: { label: "Score against outcome", key: apart, descending: true, words: ["furthest apart first", "closest first"] } }),
  }),
  ...(KNOWN.second && {
    second: { label: "B", key: (i) => rows.second[i], descending: true, words: ["high first", "low first"] },
    ...(!rows.comparison.relative.includes(true) && { gap: { label: "Judge A against B", key: gap, descending: true, words: ["furthest apart first", "closest first"] } }),
  }),
  bad: { label: rows.failures ? "Mistakes" : "Findings", key: (i) => rows.bad[i] * 1000 + rows.good[i], descending: true, words: [rows.failures ? "most first" : "most bad first", "fewest first"] },
  ...(KNOWN.lowest && { lowest: { label: "Worst step", key: (i) => rows.lowest[i], descending: false, words: ["high first", "low first"] } }),
  steps: { label: "Steps", key: (i) => rows.steps[i], descending: true, words: ["most first", "fewest first"] },
  chars: { label: "Length", key: (i) => rows.chars[i], descending: true, words: ["longest first", "shortest first"] },
  ...(KNOWN.seconds && { seconds: { label: "Time", key: (i) => rows.seconds[i], descending: true, words: ["longest first", "shortest first"] } }),
  ...(KNOWN.status && { status: { label: "Status", key: (i) => STATUS[rows.status[i]], descending: false, words: ["Z first", "A first"] } }),
};

if (!rows.failures) rows.questions.forEach((name, q) => {
  SORTS[`criterion ${q}`] = { label: name, key: (i) => rows.criteria[i]?.[q]?.[0] ?? null, descending: true, words: ["high first", "low first"] };
});

/** A row's answer to the q-th question of its criteria, as text; null where there is none. */
const answerOf = (i, q) => {
  const answer = rows.criteria[i]?.[q];
  return answer ? answer[1] ?? score2(answer[0]) : null;
};
const answersOf = (i) => rows.questions.flatMap((name, q) => (answerOf(i, q) === null ? [] : rows.failures ? words(name) : `${name}: ${answerOf(i, q)}`)).join(" · ");

const VERDICTS = {
  any: () => true,
  bad: (i) => rows.bad[i] > 0,
  good: (i) => rows.good[i] > 0 && rows.bad[i] === 0,
  unsure: (i) => rows.unsure[i] > 0,
  none: (i) => rows.good[i] + rows.bad[i] === 0,
};
const OUTCOMES = {
  any: () => true,
  success: (i) => success(i) === true,
  failure: (i) => success(i) === false,
  unknown: (i) => success(i) === null,
};
const JUDGED = {
  any: () => true,
  disagree: (i) => agrees(i) === false,
  agree: (i) => agrees(i) === true,
};

/** `question: label` → whether a row's criteria were answered so; of answers that are labels. */
const ANSWERS = Object.assign(Object.create(null), { any: () => true });
rows.questions.forEach((name, q) => {
  const labels = new Set(rows.criteria.flatMap((answers) => answers?.[q]?.[1] ?? []));
  for (const label of Array.from(labels).sort().slice(0, 30)) ANSWERS[`${name}: ${label}`] = (i) => rows.criteria[i]?.[q]?.[1] === label;
});

const inRange = (i) => {
  if (query.low === null && query.high === null) return true;
  const score = rows.score[i];
  return score !== null && score >= (query.low ?? 0) - 1e-9 && score <= (query.high ?? 1) + 1e-9;
};
const inStatus = (i) => query.statuses.size === 0 || query.statuses.has(rows.status[i]);
const inFields = (i) => inStatus(i) && VERDICTS[query.verdict](i) && OUTCOMES[query.outcome](i) && JUDGED[query.judged](i) && ANSWERS[query.answer](i);

/** Filters besides the search box that are set. */
const narrowed = () => ["low", "high", "verdict", "outcome", "judged", "answer"].filter((name) => query[name] !== UNASKED[name]);
const filtering = () => Boolean(query.text.trim() || query.statuses.size || narrowed().length);

/** Words and "quoted phrases", lower case; a row must contain them all. */
const termsOf = (text) => Array.from(text.toLowerCase().matchAll(/"([^"]+)"|[^\s"]+/g), (m) => m[1] ?? m[0]);

const labels = []; // row → what the list itself says of it, lower case, made when first searched
const labelOf = (i) => (labels[i] ??= `${rows.id[i]}\n${rows.task[i]}\n${rows.note[i]}\n${answersOf(i)}`.toLowerCase());

/** Rows that pass every filter but the score range (the histogram's), and those of them inside it, sorted. */
function select(textHits) {
  const terms = termsOf(query.text);
  const passes = (i) => inFields(i) && (terms.length === 0 || textHits[i] || terms.every((t) => labelOf(i).includes(t)));
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

/** Every text in a transcript's detail; pictures are none. */
function* strings(value) {
  if (typeof value === "string") yield value;
  else if (value && typeof value === "object") for (const [key, inner] of Object.entries(value)) if (key !== "images") yield* strings(inner);
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
      const { judge, source, rank, ...said } = JSON.parse(line);
      const haystack = labelOf(row) + "\n" + Array.from(strings(said)).join("\n").toLowerCase();
      if (terms.every((term) => haystack.includes(term))) hits[row] = 1;
    });
    report(hits, (block + 1) / firstOfBlock.length);
    await new Promise((next) => setTimeout(next)); // let the page draw and take keys between blocks
    if (mine !== scan) return;
  }
}
