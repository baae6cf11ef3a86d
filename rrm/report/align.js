// What two attempts have in common: pure functions of lists and texts, used side by side (attempts.js).

const MOST_CELLS = 1_500_000; // of a table of comparisons; what is longer is compared at its start and end alone
const MOST_CHARS = 8000; // of a text whose words are compared

/** Places [i, j] of a longest common subsequence of two lists of texts, in order. */
function common(a, b) {
  let start = 0;
  while (start < a.length && start < b.length && a[start] === b[start]) start++;
  let end = 0;
  while (end < a.length - start && end < b.length - start && a[a.length - 1 - end] === b[b.length - 1 - end]) end++;
  const [n, m] = [a.length - start - end, b.length - start - end];
  const found = Array.from({ length: start }, (_, k) => [k, k]);
  if (n * m <= MOST_CELLS) {
    const wide = m + 1;
    const best = new Uint32Array((n + 1) * wide); // of a[i…] and b[j…]
    for (let i = n - 1; i >= 0; i--) {
      for (let j = m - 1; j >= 0; j--) {
        best[i * wide + j] = a[start + i] === b[start + j] ? best[(i + 1) * wide + j + 1] + 1 : Math.max(best[(i + 1) * wide + j], best[i * wide + j + 1]);
      }
    }
    for (let i = 0, j = 0; i < n && j < m; ) {
      if (a[start + i] === b[start + j]) found.push([start + i++, start + j++]);
      else if (best[(i + 1) * wide + j] >= best[i * wide + j + 1]) i++;
      else j++;
    }
  }
  for (let k = end; k > 0; k--) found.push([a.length - k, b.length - k]);
  return found;
}

/** Lines of a side-by-side view: [i, j] of what corresponds, one of them null where the other list has nothing like it. */
function lines(a, b) {
  const found = [];
  let [i, j] = [0, 0];
  const gap = (toI, toJ) => {
    for (; i < toI || j < toJ; ) found.push([i < toI ? i++ : null, j < toJ ? j++ : null]);
  };
  for (const [x, y] of common(a, b)) {
    gap(x, y);
    found.push([i++, j++]);
  }
  gap(a.length, b.length);
  return found;
}

const wordsOf = (text) => text.match(/\s*[^\s]+|\s+$/g) ?? [];

/** Two texts as pieces [text, whether the other has it, too]; null where they are too long to compare. */
function wordChanges(left, right) {
  if (left.length > MOST_CHARS || right.length > MOST_CHARS) return null;
  const [a, b] = [wordsOf(left), wordsOf(right)];
  const both = common(a.map((word) => word.trim()), b.map((word) => word.trim()));
  const pieces = (words, shared) => {
    const found = [];
    words.forEach((word, k) => {
      const last = found[found.length - 1];
      if (last && last[1] === shared.has(k)) last[0] += word;
      else found.push([word, shared.has(k)]);
    });
    return found;
  };
  return [pieces(a, new Set(both.map(([i]) => i))), pieces(b, new Set(both.map(([, j]) => j)))];
}

/** What an agent did in a step, as one text: what it said and called, not what it thought or was answered. */
const actionOf = ({ message }) => JSON.stringify([message.text ?? "", message.calls ?? []]);
