// The page: a heading, the sections of the report in the order in which they are asked for, and links to them.

const SECTIONS = [
  costQuality, policies, differences, evidence, regretSection, decided, queriesSection, oracle, ceiling, depthSweep, support,
  levelsSection, latency, cost, reliabilitySection, ties, slices,
];

function embedded(id) {
  return JSON.parse(document.getElementById(id).textContent);
}

const REPORT = embedded("report");
const CHARTS = embedded("charts");

document.title = `${REPORT.conditions.small} \u2192 ${REPORT.conditions.large}: report of cascade eval`;
document.getElementById("top").append(...overview(REPORT));
const made = SECTIONS.map((make) => make(REPORT));
document.getElementById("main").append(...made);
document.getElementById("contents").append(
  el("ul", {}, made.map((each) => el("li", {}, el("a", { href: `#${each.id}` }, each.querySelector("h2").textContent)))),
);
await Promise.all(drawnCharts.map(draw));
document.documentElement.dataset.drawn = String(drawnCharts.length);
