// The queries regretted most: sorted, filtered and read page by page.

const PAGE_ROWS = 25;
const WHY = { margin: "margin", entropy: "entropy", expected_loss: "expected loss", misfit: "calibration does not hold" };
const FILTERS = [["q_class", "Class"], ["source", "Source"], ["action", "Action"], ["cause", "Cause"]];

function queriesSection(report) {
  const rows = report.per_query;
  const title = "Queries";
  if (!rows) return section("queries", title, absent("it was written without the section per_query"));
  if (!rows.length) return section("queries", title, absent("there are no queries"));
  const listing = new Listing(rows, referenceOf(report).name);
  const left = report.per_query_left_out;
  return section("queries", title,
    el("p", {}, `${number(rows.length, 0)} queries of the greatest regret, with what was decided and why.${left ? ` ${number(left, 0)} more are left out.` : ""} Ids only; the report holds no text.`),
    listing.choices(), listing.place, listing.pager());
}

class Listing {
  constructor(rows, policy) {
    this.rows = rows;
    this.columns = this.columnsOf(policy);
    this.wanted = {};
    this.search = "";
    this.sorted = { key: "regret", down: true };
    this.page = 0;
    this.heads = this.columns.map((column) => this.head(column));
    this.body = el("tbody", {});
    const caption = "Queries by regret; the headings sort";
    this.place = scrolled(el("table", { id: "query-table" }, el("caption", {}, caption), el("thead", {}, el("tr", {}, this.heads)), this.body), caption);
    this.says = el("span", { id: "query-rows", role: "status" });
    this.back = el("button", { type: "button", onclick: () => this.turn(-1) }, "Previous");
    this.on = el("button", { type: "button", onclick: () => this.turn(1) }, "Next");
    this.show();
  }

  columnsOf(policy) {
    const words = (key, heading) => ({ key, heading, cell: (row) => textCell(row[key]) });
    const numbers = (key, heading, digits) => ({ key, heading, number: true, cell: (row) => numberCell(row[key], digits) });
    const various = ([key]) => ["action", "cause"].includes(key) || new Set(this.rows.map((row) => row[key])).size > 1;
    this.filters = FILTERS.filter(various);
    const told = Object.fromEntries(this.filters.map(([key, heading]) => [key, words(key, heading)]));
    told.cause.cell = (row) => textCell(row.cause?.replaceAll("_", " "));
    return [
      { key: "id", heading: "Query", cell: (row) => ({ text: row.id, id: true }) },
      ...[told.q_class, told.source].filter(Boolean), told.action,
      numbers("regret", "Regret", 3), told.cause, numbers("small", "small", 3), numbers("large", "large", 3), numbers(policy, policy, 3),
      numbers("pairs", "Pairs", 0), numbers("depth", "Depth", 0), numbers("rounds", "Rounds", 0),
      { key: "why", heading: "Why", cell: (row) => ({ text: whyOf(row), wide: true }) },
    ];
  }

  head(column) {
    const button = el("button", { type: "button", onclick: () => this.sort(column) }, column.heading);
    return el("th", { scope: "col", class: column.number ? "number" : null, "data-key": column.key }, button);
  }

  choices() {
    const filter = ([key, heading]) => {
      const values = [...new Set(this.rows.map((row) => row[key]).filter((value) => value !== null))].sort();
      const options = [["", "all"], ...values.map((value) => [value, key === "cause" ? value.replaceAll("_", " ") : value])];
      return choice(heading, options, "", (value) => { this.wanted[key] = value; this.turnTo(0); });
    };
    const search = el("input", { type: "search", oninput: (event) => { this.search = event.target.value.trim().toLowerCase(); this.turnTo(0); } });
    return el("div", { class: "choices", id: "query-choices" }, this.filters.map(filter), el("label", {}, "Id contains", search));
  }

  pager() {
    return el("div", { class: "pager" }, this.back, this.on, this.says);
  }

  sort(column) {
    const same = this.sorted.key === column.key;
    this.sorted = { key: column.key, down: same ? !this.sorted.down : Boolean(column.number) };
    this.turnTo(0);
  }

  turn(by) {
    this.turnTo(this.page + by);
  }

  turnTo(page) {
    this.page = page;
    this.show();
  }

  chosen() {
    const kept = this.rows.filter((row) => Object.entries(this.wanted).every(([key, value]) => !value || row[key] === value) && row.id.toLowerCase().includes(this.search));
    const { key, down } = this.sorted;
    const value = (row) => (key === "why" ? whyOf(row) : row[key]);
    const order = (one, other) => {
      const [left, right] = [value(one), value(other)];
      if (left === null || right === null) return (left === null) - (right === null);
      const compared = typeof left === "number" ? left - right : left.localeCompare(right, "en", { numeric: true });
      return down ? -compared : compared;
    };
    return kept.sort(order);
  }

  show() {
    const chosen = this.chosen();
    const from = this.page * PAGE_ROWS;
    const page = chosen.slice(from, from + PAGE_ROWS);
    this.body.replaceChildren(...page.map((row) => rowElement(this.columns.map((column) => column.cell(row)))));
    this.heads.forEach((head, place) => {
      const sorted = this.columns[place].key === this.sorted.key;
      if (sorted) head.setAttribute("aria-sort", this.sorted.down ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
    this.says.textContent = chosen.length ? `${number(from + 1, 0)} to ${number(from + page.length, 0)} of ${number(chosen.length, 0)}` : "No query is like that.";
    this.back.disabled = this.page === 0;
    this.on.disabled = from + PAGE_ROWS >= chosen.length;
  }
}

function whyOf(row) {
  const told = Object.entries(row.why).map(([name, value]) => `${WHY[name] ?? name}${typeof value === "number" ? ` ${number(value, 3)}` : `: ${value}`}`);
  return told.length ? told.join(", ") : "its number is fixed";
}
