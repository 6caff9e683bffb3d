// Charts, drawn by Vega from the specifications beside the report, with a legend that works without a mouse.

const SCHEME = matchMedia("(prefers-color-scheme: dark)");
const drawnCharts = [];

async function draw(chart) {
  const spec = { ...chart.spec, description: chart.says, datasets: { rows: chart.rows } };
  // ast: expressions are interpreted, so that the page needs no eval.
  const asked = { ast: true, renderer: "svg", actions: false, defaultStyle: false, tooltip: { disableDefaultStyle: true } };
  chart.done?.finalize();
  chart.done = await vegaEmbed(chart.place, spec, { ...asked, config: CHARTS.themes[SCHEME.matches ? "dark" : "light"] });
  for (const [name, value] of Object.entries(chart.signals)) chart.done.view.signal(name, value);
  await chart.done.view.runAsync();
}

async function tell(chart, name, value) {
  chart.signals[name] = value;
  if (chart.done) await chart.done.view.signal(name, value).runAsync();
}

SCHEME.addEventListener("change", () => drawnCharts.forEach(draw));

// A figure with its legend and its numbers, or why it is not there.
function chartFigure(name, why) {
  const found = CHARTS.charts.find((chart) => chart.name === name);
  if (!found) return absent(why);
  const chart = { ...found, place: el("div", { class: "drawn" }), signals: {} };
  drawnCharts.push(chart);
  const figure = el("figure", { id: `chart-${name}` }, el("figcaption", {}, chart.title), legendOf(chart), chart.place, numbersOf(chart));
  figure.chart = chart;
  return figure;
}

function legendOf(chart) {
  const names = Object.keys(chart.series);
  if (names.length < 2) return null;
  const hidden = new Set();
  const boxes = names.map((name) => {
    const change = () => {
      hidden[box.checked ? "delete" : "add"](name);
      tell(chart, "hidden", [...hidden]);
    };
    const box = el("input", { type: "checkbox", checked: true, value: name, onchange: change });
    const swatch = el("span", { class: "swatch", "aria-hidden": "true" });
    swatch.style.background = chart.series[name];
    return el("label", {}, box, swatch, name);
  });
  return el("fieldset", {}, el("legend", {}, "Shown"), boxes);
}

function numbersOf(chart) {
  const fields = Object.keys(chart.columns);
  const whole = fields.map((field) => chart.rows.every((row) => !(row[field] % 1)));
  const rows = chart.rows.map((row) => fields.map((field, place) => chartCell(row[field], whole[place] ? 0 : 4)));
  const made = el("details", {}, el("summary", {}, `The numbers of this chart (${rows.length})`));
  made.addEventListener("toggle", () => made.children.length > 1 || made.append(...table(chart.says, Object.values(chart.columns), rows).filter(Boolean)));
  return made;
}

function chartCell(value, digits) {
  return typeof value === "number" ? numberCell(value, digits) : textCell(value);
}
