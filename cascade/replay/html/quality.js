// Quality against cost, and the policies at one setting each.

const LEVELS = ["0.80", "0.90", "0.95", "0.98"];

function costQuality(report) {
  const share = chartFigure("recovered", "no share can be recovered where it is not shown that the large stage helps; see absolute quality");
  const absolute = chartFigure("absolute", "there are no curves");
  const shown = share.chart ? "share" : "absolute";
  const panels = { share, absolute };
  const show = (name) => Object.entries(panels).forEach(([each, panel]) => { panel.hidden = each !== name; });
  const radio = (value, words) => {
    const box = el("input", { type: "radio", name: "measure", value, checked: value === shown, onchange: () => { show(value); panels[value].chart && draw(panels[value].chart); } });
    return el("label", {}, box, words);
  };
  show(shown);
  return section("curves", "Quality against cost",
    el("p", {}, "Each line is a policy at all of its settings; up and to the left is better. In share recovered, 0 is the small stage and 1 the large one. Horizontal bars are intervals of the cost at 80, 90, 95 and 98%; vertical bars are intervals of quality. They are drawn a little apart."),
    el("fieldset", { id: "measure" }, el("legend", {}, "Measure"), radio("share", "share recovered"), radio("absolute", `absolute ${metricName(report.conditions)}`)),
    share, absolute, ...costs(report));
}

function costs(report) {
  const rows = Object.keys(report.cost_at_recovered).map((name) => [
    textCell(name),
    ...LEVELS.map((level) => figureCell(figure(report, "cost_at_recovered", name, level))),
    figureCell(figure(report, "area_10_50", name)),
  ]);
  return table("Share of large pairs at which a share of the difference is recovered, and the mean share recovered over costs 0.10 to 0.50", ["Policy", ...LEVELS.map((level) => percent(Number(level), 0)), "Area"], rows, (row) => row[0].text === "policy");
}

function policies(report) {
  const counted = [["large_share", 3], ["large_pairs", 1], ["large_tokens", 0], ["regret", 4], ["engaged", 3], ["judged", 3]];
  const rows = report.policies.map((policy) => [
    textCell(policy.name),
    ...["ndcg", "mrr", "recall", "hit"].map((metric) => figureCell(figure(policy, metric))),
    ...counted.map(([name, digits]) => figureCell(figure(policy, name), { digits })),
    { ...textCell(settingsOf(policy)), wide: true },
  ]);
  const reference = referenceOf(report).name;
  return section("policies", "Policies",
    el("p", {}, `Each at one setting: its only one, its own, or where it costs as much as ${reference}. Oracle and random are bounds to compare with, not policies to serve.`),
    ...table("Policies at one setting each; pairs and tokens are those of the large stage, a query's mean", ["Policy", "ndcg", "mrr", "recall", "hit", "Share of pairs", "Pairs", "Tokens", "Regret", "Engaged", "Judged", "Setting"], rows, (row) => row[0].text === reference));
}

function settingsOf(policy) {
  const odds = ([setting, share]) => (share === 1 ? significant(setting) : `${significant(setting)} (${percent(share, 0)})`);
  return `${policy.settings.map(odds).join(" or ")}: ${policy.chosen}`;
}

function differences(report) {
  const signed = { signed: true };
  const rows = report.differences.filter((each) => each.name !== "random").map((each) => [
    textCell(`${each.name} minus ${each.baseline}`),
    figureCell(figure(each, "area_10_50"), signed),
    ...LEVELS.map((level) => figureCell(figure(each, "cost_at_recovered", level), signed)),
    figureCell(figure(each, "at_equal_cost"), { digits: 4, signed: true }),
  ]);
  const told = rows.length ? table("Paired differences on the same resamples; costs are better below zero", ["Difference", "Area", ...LEVELS.map((level) => `Cost at ${percent(Number(level), 0)}`), "Quality at equal cost"], rows) : [absent("nothing but baselines was replayed; name a calibration or a release")];
  return section("differences", "Against the baselines", ...told);
}

function slices(report) {
  const attributes = Object.keys(report.slices);
  if (!attributes.length) return section("slices", "Slices", absent("the tables have neither q_class nor source"));
  const place = el("div", {});
  const show = (attribute) => place.replaceChildren(...sliceTable(report, attribute).filter(Boolean));
  show(attributes[0]);
  return section("slices", "Slices", el("p", {}, "The same measured on some of the queries. Below ten queries there are no intervals."),
    el("div", { class: "choices" }, choice("Slices by", attributes.map((name) => [name, name]), attributes[0], show)), place);
}

function sliceTable(report, attribute) {
  const names = report.policies.map((policy) => policy.name).filter((name) => !["random", "oracle"].includes(name));
  const metric = report.conditions.metric;
  const rows = Object.entries(report.slices[attribute]).map(([value, part]) => {
    const policy = referenceOf(part);
    return [
      textCell(value), numberCell(part.queries), figureCell(figure(part, "gap"), { signed: true }),
      ...names.map((name) => figureCell(figure(part.policies.find((each) => each.name === name), metric))),
      figureCell(figure(policy, "large_share")),
    ];
  });
  return table(`${metricName(report.conditions)} by ${attribute}`, [attribute, "Queries", "Large minus small", ...names, "Share of pairs"], rows);
}
