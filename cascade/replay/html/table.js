// Tables. A cell is {text, under?, sort?, reason?, number?, id?}; reasons for what is undefined stand below.

function cellElement(cell, first) {
  const text = cell.id ? el("bdi", {}, cell.text) : cell.text;
  const kind = cell.number ? "number" : cell.id ? "id" : cell.wide ? "wide" : null;
  const under = cell.under ? el("span", { class: "interval" }, cell.under) : null;
  return el(first ? "th" : "td", { class: kind, scope: first ? "row" : null }, text, under);
}

function rowElement(cells, own) {
  return el("tr", { class: own ? "own" : null }, cells.map((cell, place) => cellElement(cell, place === 0)));
}

// `rows` are lists of cells; `own` tells which row is of the policy that the report is about.
function table(caption, headings, rows, own = () => false) {
  const numbers = headings.map((_, place) => rows.length > 0 && rows.every((row) => row[place].number));
  const heads = headings.map((heading, place) => el("th", { scope: "col", class: numbers[place] ? "number" : null }, heading));
  const body = rows.map((row, place) => rowElement(row, own(row, place)));
  const drawn = el("table", {}, el("caption", {}, caption), el("thead", {}, el("tr", {}, heads)), el("tbody", {}, body));
  return [scrolled(drawn, caption), reasons(rows)];
}

// Wide tables scroll in a box of their own, by keyboard too.
function scrolled(drawn, label) {
  return el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label }, drawn);
}

function reasons(rows) {
  const told = [...new Set(rows.flat().filter((cell) => cell.reason).map((cell) => cell.reason))];
  return told.length ? el("p", { class: "soft" }, `${NONE} and missing intervals: ${told.join("; ")}.`) : null;
}
