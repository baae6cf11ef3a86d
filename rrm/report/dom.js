// Making elements. Text from transcripts only ever becomes text nodes: nothing here or elsewhere parses HTML.

const $ = (id) => document.getElementById(id);

/** An element; `props` are attributes (`on…` are listeners, null and false are left out), children are nodes or text. */
function h(tag, props, ...children) {
  const el = document.createElement(tag);
  for (const [name, value] of Object.entries(props || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) el.addEventListener(name.slice(2), value);
    else el.setAttribute(name, value === true ? "" : value);
  }
  el.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== ""));
  return el;
}

const SVG = "http://www.w3.org/2000/svg";

function svg(tag, attributes, ...children) {
  const el = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) el.setAttribute(name, value);
  el.append(...children);
  return el;
}

/** From this share on a transcript counts as read. */
const READ = 0.9;
const percent = (share) => `${Math.floor(share * 100)} %`;

/** What is said of a transcript whose form is unlike all the judge was trained on. */
const OUTSIDE = "outside what this judge was measured on";

/** Verdict as it is shown: a good one of a probability below one half passed the judge's threshold, and no more. */
const markOf = (verdict, p) => (verdict === "good" && p !== undefined && p < 0.5 ? "weak" : verdict);
const WEAK = "Good by the judge's threshold, with a probability below one half";

const icon = (name) => svg("svg", { class: `icon icon-${name}`, "aria-hidden": "true" }, svg("use", { href: `#i-${name}` }));

const whole = new Intl.NumberFormat("en");
const count = (n, one, many = one + "s") => `${whole.format(n)} ${n === 1 ? one : many}`;
const score2 = (value) => (value === null || value === undefined ? "–" : value.toFixed(2));

/** A length in characters, short enough for a column: 812, 4.1k, 127k, 3.2M. */
function short(n) {
  if (n < 1000) return String(n);
  if (n < 999_500) return (n / 1000).toFixed(n < 9_950 ? 1 : 0) + "k";
  return (n / 1e6).toFixed(1) + "M";
}

/** A bar for a score in [0, 1]; null leaves the track empty. */
function fillBar(bar, value) {
  bar.classList.toggle("none", value === null);
  bar.firstChild.style.transform = `scaleX(${value ?? 0})`;
}
const scoreBar = (value) => {
  const bar = h("span", { class: "bar", "aria-hidden": "true" }, h("i"));
  fillBar(bar, value);
  return bar;
};

/** A time, short enough for a column: 0.4 s, 12 s, 3 m 05 s, 2 h 10 m. */
function duration(seconds) {
  if (seconds < 9.95) return `${seconds.toFixed(1)} s`;
  const all = Math.round(seconds);
  if (all < 60) return `${all} s`;
  const two = (n) => String(n).padStart(2, "0");
  if (all < 3600) return `${Math.floor(all / 60)} m ${two(all % 60)} s`;
  return `${whole.format(Math.floor(all / 3600))} h ${two(Math.floor((all % 3600) / 60))} m`;
}

/** How a run ended: 1 and 0 are words, what lies between is a number. */
const outcomeText = (value) => (value === null || value === undefined ? "–" : value === 1 ? "success" : value === 0 ? "failure" : value.toFixed(2));

const STATUS = {
  scored: "Scored",
  unparsable: "Unparsable",
  truncated: "Cut off",
  too_long: "Too long",
  judge_error: "Judge error",
};
const STATUS_HELP = {
  scored: "The judge gave a score",
  unparsable: "The judge's text had no valid score",
  truncated: "The judge's text was cut off by its length limit",
  too_long: "The transcript did not fit the judge",
  judge_error: "The judge could not be asked",
};
