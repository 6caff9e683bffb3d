// Elements and text. Nothing that is told is ever parsed as HTML.

const NONE = "\u2014";
const SVG = "http://www.w3.org/2000/svg";

function put(made, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return made;
}

function el(tag, attributes = {}, ...children) {
  return put(document.createElement(tag), attributes, children);
}

function drawn(tag, attributes = {}, ...children) {
  return put(document.createElementNS(SVG, tag), attributes, children);
}

// What somebody named: it keeps its own direction, and cannot turn that of the words around it.
function name(text) {
  return el("bdi", {}, text === null || text === undefined || text === "" ? NONE : String(text));
}

function digest(text) {
  if (!text) return NONE;
  const short = text.startsWith("sha256:") ? text.slice(7, 19) : text.slice(0, 12);
  return el("code", { title: text }, short);
}

function list(entries) {
  return entries.length ? el("ul", { class: "plain" }, entries.map((each) => el("li", {}, el("bdi", {}, each)))) : null;
}

function pairs(...entries) {
  return el("dl", { class: "pairs" }, entries.filter(Boolean).map(([term, ...said]) => [el("dt", {}, term), el("dd", {}, said)]));
}

function alertBox(kind, ...said) {
  return el("div", { class: `alert ${kind}` }, said);
}

// Headings are words, or {words, number: true}; cells are what stands in them.
function table(caption, headings, rows, kind = "") {
  const isNumber = headings.map((each) => Boolean(each.number));
  const heads = headings.map((each) => el("th", { scope: "col", class: each.number ? "number" : null }, each.words ?? each));
  const body = rows.map((row) =>
    el("tr", {}, row.map((cell, place) => el(place ? "td" : "th", { scope: place ? null : "row", class: isNumber[place] ? "number" : null }, cell))),
  );
  const made = el("table", {}, el("caption", {}, caption), el("thead", {}, el("tr", {}, heads)), el("tbody", {}, body));
  return el("div", { class: `scroll ${kind}`, tabindex: "0", role: "region", "aria-label": caption }, made);
}

function folded(key, words, ...children) {
  return el("details", { "data-key": key }, el("summary", {}, words), children);
}

// Draw a part anew where what it shows has changed. Who reads it loses nothing: what is open stays open, what is scrolled
// stays where it is, and the focus too.
const shown = new Map();

function show(place, data, make) {
  const written = JSON.stringify(data);
  if (shown.get(place) === written) return;
  shown.set(place, written);
  const scrolled = [...place.querySelectorAll(".scroll")].map((each) => [each.scrollLeft, each.scrollTop]);
  const opened = new Set([...place.querySelectorAll("details[open]")].map((each) => each.dataset.key));
  const focused = place.contains(document.activeElement) ? handle(place, document.activeElement) : null;
  place.replaceChildren(...[make()].flat(Infinity).filter(Boolean));
  for (const each of place.querySelectorAll("details")) each.open = opened.has(each.dataset.key);
  [...place.querySelectorAll(".scroll")].forEach((each, place) => each.scrollTo(...(scrolled[place] ?? [0, 0])));
  if (focused) focused()?.focus({ preventScroll: true });
}

// How to find again what has the focus: a summary by what it opens, a box that scrolls by its place.
function handle(place, focused) {
  const key = focused.closest("details")?.dataset.key;
  if (focused.matches("summary")) return () => [...place.querySelectorAll("details")].find((each) => each.dataset.key === key)?.querySelector("summary");
  const nth = [...place.querySelectorAll(".scroll")].indexOf(focused);
  return nth < 0 ? null : () => place.querySelectorAll(".scroll")[nth];
}
