// Messages as they were written: long texts cut, calls with their arguments, pictures. Needs `highlight`, called when a text unfolds.

// What is shown of a text before "show more": what the agent said nearly whole, what tools returned in brief.
const WHOLE = { lines: 120, chars: 9000 };
const BRIEF = { lines: 12, chars: 1200 };
const TITLE = { lines: 8, chars: 600 };
const SPARE = 1.5; // a text this many times over the limit is still shown whole: no click for a few more lines

const lineEnd = (text, lines) => {
  let at = -1;
  for (let line = 0; line < lines; line++) {
    at = text.indexOf("\n", at + 1);
    if (at < 0) return text.length;
  }
  return at;
};

/** Where a long text is cut; its own length when it is not long. */
function cutAt(text, { lines, chars }) {
  const whole = Math.min(lineEnd(text, lines * SPARE), chars * SPARE);
  return text.length <= whole ? text.length : Math.min(lineEnd(text, lines), chars);
}

/** Where the last part of a text begins, as long as the first that is shown. */
function endAt(text, { lines, chars }) {
  let at = text.length;
  for (let line = 0; line < lines && at > 0; line++) at = text.lastIndexOf("\n", at - 1);
  return Math.max(at + 1, text.length - chars);
}

/** Text as it was written; the rest of a long one comes on request (and before printing), or its end alone. */
function longText(text, name = "text", limit = BRIEF) {
  const body = h("div", { class: name });
  const cut = cutAt(text, limit);
  body.append(text.slice(0, cut));
  if (cut >= text.length) return body;
  const from = endAt(text, limit);
  const rest = document.createTextNode("");
  const gap = h("p", { class: "gap", hidden: true }, `… ${whole.format(from - cut)} characters …`);
  const label = `Show ${whole.format(text.length - cut)} more characters`;
  const toggle = h("button", { type: "button", class: "link more", "aria-expanded": "false" }, label);
  const ending = from > cut ? h("button", { type: "button", class: "link ending", "aria-expanded": "false" }, "Show the end") : null;
  const show = (what) => { // "all", "end" or nothing of what was cut
    rest.data = what ? text.slice(what === "all" ? cut : from) : "";
    gap.hidden = what !== "end";
    toggle.setAttribute("aria-expanded", what === "all");
    toggle.textContent = what === "all" ? "Show less" : label;
    if (ending) {
      ending.hidden = what === "all"; // it is seen
      ending.setAttribute("aria-expanded", what === "end");
      ending.textContent = what === "end" ? "Hide the end" : "Show the end";
    }
    highlight();
  };
  toggle.expand = (open) => show(open ? "all" : "");
  toggle.addEventListener("click", () => toggle.expand(toggle.getAttribute("aria-expanded") === "false"));
  ending?.addEventListener("click", () => show(gap.hidden ? "end" : ""));
  body.append(gap, rest);
  return h("div", { class: "long" }, body, toggle, ending);
}

/** Show all that is cut short in an element, or cut it again; false where nothing is. */
function unfold(element) {
  const toggles = [...element.querySelectorAll(".more")];
  const open = toggles.some((toggle) => toggle.getAttribute("aria-expanded") === "false");
  for (const toggle of toggles) toggle.expand(open);
  return toggles.length > 0;
}

/** A tool call: its name, and its arguments each as text (or the raw text that was not JSON). */
function callView([name, args], n, { length }) {
  const body = typeof args === "string"
    ? [h("p", { class: "muted" }, "Arguments are not a JSON object:"), longText(args, "text mono")]
    : args.length ? [h("dl", { class: "args" }, ...args.map(([key, value]) => h("div", null, h("dt", { class: "mono" }, key), h("dd", null, longText(value, "text mono")))))] : [];
  return h("div", { class: "call" }, h("p", { class: "who" }, length > 1 ? `Call ${n + 1} ` : "Calls ", h("b", { class: "mono" }, name)), ...body);
}

/** A picture whose bytes the transcript holds (`rrm.report.images` has looked at them), or why it is not shown. */
function imageView({ src, width, height, note }, n) {
  if (note) return h("p", { class: "muted" }, note);
  return h("img", { class: "picture", src, width, height, alt: `Picture ${n + 1} of this message, ${width} by ${height} pixels`, loading: "lazy", decoding: "async" });
}

/** Pictures of what was asked, for under the task: the messages that they stand in are folded away. */
const askedPictures = ({ prelude = [] }) => prelude.filter(({ role }) => role === "user").flatMap(({ images = [] }) => images).map(imageView);

const SPEAKER = { system: "System", developer: "Developer", user: "User", assistant: "Agent", tool: "Result" };

function messageView(message) {
  const { role, name, text, reasoning, images = [], calls = [], at, seconds, missing, call } = message;
  const when = [at, seconds === undefined ? null : `${seconds} s`].filter(Boolean).join(" · ");
  const who = h("p", { class: "who" }, SPEAKER[role], call ? ` of call ${call}` : null, name ? [" ", h("b", { class: "mono" }, name)] : null, when ? h("span", { class: "when" }, when) : null);
  return h(
    "div",
    { class: `message ${role}` },
    role === "assistant" ? null : who,
    reasoning ? h("div", { class: "reasoning" }, h("p", { class: "who" }, "Reasoning"), longText(reasoning, "text", BRIEF)) : null,
    text ? longText(text, role === "tool" ? "text mono" : "text", role === "assistant" ? WHOLE : BRIEF) : null,
    ...images.map(imageView),
    ...calls.map(callView),
    text || reasoning || calls.length ? null : h("p", { class: "muted" }, missing ? "(no result)" : "(empty message)"),
  );
}

function preludeView(d) {
  const { prelude = [], tools = [] } = d;
  const named = tools.map(([name, description, definition]) => h("details", { class: "definition" }, h("summary", null, h("b", { class: "mono" }, name), description ? h("span", { class: "muted" }, " " + description.slice(0, 160)) : null), longText(definition, "text mono")));
  return [
    prelude.length ? h("details", { class: "prelude" }, h("summary", null, "Before the first step", h("span", { class: "muted" }, count(prelude.length, "message"))), ...prelude.map(messageView)) : null,
    tools.length ? h("details", { class: "prelude" }, h("summary", null, "Tools the agent had", h("span", { class: "muted" }, whole.format(tools.length))), ...named) : null,
  ];
}
