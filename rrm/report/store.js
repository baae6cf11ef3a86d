// The data: columns for the list, and blocks of gzipped transcripts unpacked when they are needed.

const rows = JSON.parse($("index").textContent);
const total = rows.id.length;
const firstOfBlock = [];
rows.blocks.reduce((start, size) => (firstOfBlock.push(start), start + size), 0);

const byId = new Map();
for (let i = 0; i < total; i++) if (!byId.has(rows.id[i])) byId.set(rows.id[i], i);

const wellFormed = (text) => !/\p{Surrogate}/u.test(text);

/** A row's address: its id, or its position where the id cannot stand in an address or is not its alone. */
const hashOf = (row) =>
  byId.get(rows.id[row]) === row && rows.id[row] && wellFormed(rows.id[row]) ? "#" + encodeURIComponent(rows.id[row]) : `#~${row}`;

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch (error) {
    if (error instanceof URIError) return text; // a stray % typed by hand
    throw error;
  }
}

function findRow(text) {
  const row = byId.get(decoded(text)) ?? byId.get(text);
  if (row !== undefined) return row;
  const position = /^~(\d+)$/.exec(text);
  return position && Number(position[1]) < total ? Number(position[1]) : undefined;
}

function blockOf(row) {
  let low = 0;
  let high = firstOfBlock.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (firstOfBlock[middle] <= row) low = middle;
    else high = middle - 1;
  }
  return low;
}

const parsed = new Promise((done) => {
  if (document.readyState !== "loading") done();
  else document.addEventListener("DOMContentLoaded", done, { once: true });
});

/** A block's lines, one JSON object a transcript. While the page still arrives, a block counts once the next has begun. */
async function unpack(block) {
  if (document.readyState === "loading" && !$(`block-${block + 1}`)) await parsed;
  const packed = Uint8Array.from(atob($(`block-${block}`).textContent), (c) => c.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  return (await new Response(stream).text()).split("\n");
}

const RECENT_BLOCKS = 4;
const recent = new Map(); // block → promise of its lines, oldest first

async function detailOf(row) {
  const block = blockOf(row);
  const lines = recent.get(block) || unpack(block);
  recent.delete(block);
  recent.set(block, lines);
  if (recent.size > RECENT_BLOCKS) recent.delete(recent.keys().next().value);
  return JSON.parse((await lines)[row - firstOfBlock[block]]);
}
