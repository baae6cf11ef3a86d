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

/** Text as it was written; the rest of a long one comes on request (and before printing). */
function longText(text, name = "text", limit = BRIEF) {
  const body = h("div", { class: name });
  const cut = cutAt(text, limit);
  body.append(text.slice(0, cut));
  if (cut >= text.length) return body;
  const rest = document.createTextNode("");
  const label = `Show ${whole.format(text.length - cut)} more characters`;
  const toggle = h("button", { type: "button", class: "link more", "aria-expanded": "false" }, label);
  const expand = (open) => {
    rest.data = open ? text.slice(cut) : "";
    toggle.setAttribute("aria-expanded", open);
    toggle.textContent = open ? "Show less" : label;
    highlight();
  };
  toggle.addEventListener("click", () => expand(!rest.data));
  toggle.expand = expand;
  body.append(rest);
  return h("div", { class: "long" }, body, toggle);
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
