// Elements and text. Nothing of a report is ever parsed as HTML.

function el(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return made;
}

function section(id, title, ...children) {
  const heading = el("h2", { id: `${id}-title` }, title);
  return el("section", { id, "aria-labelledby": heading.id }, heading, ...children);
}

function absent(why) {
  return el("p", { class: "absent" }, `Not in this report: ${why}.`);
}

function alertBox(kind, lead, text) {
  return el("p", { class: `alert ${kind}`, role: kind === "good" ? "note" : "alert" }, el("strong", {}, lead), ` ${text}`);
}

// A labelled select; `options` are [value, words].
function choice(label, options, chosen, onchange) {
  const select = el("select", { onchange: () => onchange(select.value) });
  for (const [value, words] of options) select.append(el("option", { value, selected: value === chosen }, words));
  return el("label", {}, label, select);
}

// A nested object as a list of names and values.
function pairs(node) {
  const list = el("dl", { class: "pairs" });
  for (const [name, value] of Object.entries(node)) {
    list.append(el("dt", {}, name.replaceAll("_", " ")), el("dd", {}, ...plain(value)));
  }
  return list;
}

function plain(value) {
  if (value === null || value === "") return [NONE];
  if (Array.isArray(value)) {
    if (!value.length) return ["none"];
    if (value.every((each) => typeof each !== "object")) return [value.join(", ")];
    return value.flatMap(plain);
  }
  if (typeof value === "object") return Object.keys(value).length ? [pairs(value)] : ["none"];
  return [String(value)];
}
