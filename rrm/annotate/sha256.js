// SHA-256 (FIPS 180-4) of a value's JSON, as `rrm.annotate.comparison_sheet.checksum` has it: a page from a file may have no crypto.subtle.

/** JSON in ASCII without spaces, as Python's json.dumps writes it. */
const asciiJson = (value) => JSON.stringify(value).replace(/[\u007f-\uffff]/g, (c) => "\\u" + c.charCodeAt(0).toString(16).padStart(4, "0"));

function checksum(value) {
  const bytes = [...asciiJson(value)].map((c) => c.charCodeAt(0));
  const length = bytes.length;
  bytes.push(0x80);
  while (bytes.length % 64 !== 56) bytes.push(0);
  for (let i = 7; i >= 0; i--) bytes.push(Math.floor((length * 8) / 2 ** (8 * i)) & 255);
  const primes = [];
  for (let n = 2; primes.length < 64; n++) if (primes.every((p) => n % p)) primes.push(n);
  const bits = (root) => Math.floor((root % 1) * 2 ** 32) | 0; // of the fraction, the first 32
  const state = primes.slice(0, 8).map((p) => bits(Math.sqrt(p)));
  const constants = primes.map((p) => bits(Math.cbrt(p)));
  const turn = (x, n) => (x >>> n) | (x << (32 - n));
  for (let at = 0; at < bytes.length; at += 64) {
    const w = [];
    for (let i = 0; i < 64; i++) {
      if (i < 16) w[i] = (bytes[at + 4 * i] << 24) | (bytes[at + 4 * i + 1] << 16) | (bytes[at + 4 * i + 2] << 8) | bytes[at + 4 * i + 3];
      else w[i] = (w[i - 16] + w[i - 7] + (turn(w[i - 15], 7) ^ turn(w[i - 15], 18) ^ (w[i - 15] >>> 3)) + (turn(w[i - 2], 17) ^ turn(w[i - 2], 19) ^ (w[i - 2] >>> 10))) | 0;
    }
    let [a, b, c, d, e, f, g, k] = state;
    for (let i = 0; i < 64; i++) {
      const first = (k + (turn(e, 6) ^ turn(e, 11) ^ turn(e, 25)) + ((e & f) ^ (~e & g)) + constants[i] + w[i]) | 0;
      const second = ((turn(a, 2) ^ turn(a, 13) ^ turn(a, 22)) + ((a & b) ^ (a & c) ^ (b & c))) | 0;
      [a, b, c, d, e, f, g, k] = [(first + second) | 0, a, b, c, (d + first) | 0, e, f, g];
    }
    [a, b, c, d, e, f, g, k].forEach((x, i) => (state[i] = (state[i] + x) | 0));
  }
  return state.map((x) => (x >>> 0).toString(16).padStart(8, "0")).join("");
}
