// Where decisions go wrong, what they could have been worth, and whether the probabilities behind them hold.

const CAUSES = {
  missed_escalation: "nothing was sent, and sending was worth it",
  wasted_escalation: "pairs were sent, and sending none was better",
  wrong_depth: "the small stage scored too few or too many",
  wrong_cluster: "sending was right, but other candidates",
  false_exclusion: "a better action needed candidates beyond the depth",
  other: "none of these; below zero where the policy beat every action that was tried",
};

function decided(report) {
  const told = report.decided;
  if (!told) return section("decided", "What was decided", absent("no policy was replayed"));
  const rows = Object.entries(told.actions).map(([action, share]) => [textCell(action), { text: percent(share), sort: share, number: true }]);
  return section("decided", "What was decided", el("p", {}, `At its own setting: ${number(told.rounds, 2)} rounds and a depth of ${number(told.depth, 1)}, a query's mean.`),
    ...table("Queries by action", ["Action", "Share"], rows));
}

function regretSection(report) {
  const told = report.regret;
  if (!told) return section("regret", "Regret", absent("it was written without the section regret"));
  const attributes = Object.keys(told.by);
  const drawn = chartFigure("regret", "there is none");
  const slices = (name) => Object.keys(told.by[name]).length;
  const choose = async (name) => {
    const bar = drawn.chart.spec.height / (1 + slices(attributes[0]));
    await tell(drawn.chart, "slice", name);
    await tell(drawn.chart, "height", bar * (1 + slices(name)));
  };
  const options = attributes.map((name) => [name, name]);
  const chooser = attributes.length > 1 ? el("div", { class: "choices" }, choice("Slices by", options, attributes[0], choose)) : null;
  const rows = Object.keys(CAUSES).map((cause) => [textCell(cause.replaceAll("_", " ")), figureCell(figure(told, cause), { digits: 4 }), { ...textCell(CAUSES[cause]), wide: true }]);
  rows.unshift([textCell("total"), figureCell(figure(told, "total"), { digits: 4 }), textCell("the parts sum to it")]);
  return section("regret", "Regret",
    el("p", {}, `Utility (quality minus ${report.conditions.price_per_pair} a pair) of the best action for each query minus that of ${told.of}, by the decision that gave it away. The best action is known only afterwards: see Oracle for how far that flatters it.`),
    chooser, drawn, ...table(`Mean regret of ${told.of} and its parts`, ["Part", "Mean regret", "Meaning"], rows));
}

function oracle(report) {
  const told = report.oracle;
  if (!told) return section("oracle", "Oracle", absent("it was written without the section oracle"));
  if (!told.policies) return section("oracle", "Oracle", absent(told.reasons.inflation));
  const names = ["quality", "large_pairs", "utility", "advantage", "over_constant"];
  const row = (name, ...path) => [textCell(name), ...names.map((each) => {
    const found = figure(told, ...path, each);
    return found.value === null && !found.reason ? textCell("") : figureCell(found, { digits: each === "large_pairs" ? 1 : 4 });
  }).map((cell) => ({ ...cell, number: true }))];
  const rows = [...Object.keys(told.policies).map((name) => row(name, "policies", name)), row("oracle, in sample", "in_sample"), row("oracle, cross-fitted", "crossfit")];
  return section("oracle", "Oracle",
    el("p", {}, `The best of ${told.actions.length} actions for each query. In sample it is chosen by the judgements that score it; cross-fitted, by the other half of them. The difference, ${interval0(figure(told, "inflation"), 4)}, is what choosing by noise adds. Measured on ${number(told.queries, 0)} queries with relevant candidates in both halves (cut-off ${told.k_of_half}); ${number(told.left_out, 0)} are left out here.`),
    ...table("Policies and oracles on the mean of both halves", ["", "Quality", "Pairs", "Utility", `Advantage over ${report.regret?.of ?? "the policy"}`, `Over always ${told.constant}`], rows));
}

function interval0(found, digits) {
  return found.interval ? `${number(found.value, digits)} (${interval(found.interval, (value) => number(value, digits))})` : number(found.value, digits);
}

function ceiling(report) {
  return section("ceiling", "Ceiling",
    el("p", {}, "Relevant documents among the first m of the small order. No escalation of a head of that order can bring up what is not in it."),
    chartFigure("ceiling", report.ceiling?.reasons.candidates ?? "it was written without the section ceiling"));
}

function depthSweep(report) {
  const first = report.depth_sweep?.[0];
  const why = (path) => (first ? at(first.reasons, path) ?? "no depth was swept" : "it was written without the section depth_sweep");
  return section("depth", "Depth", el("p", {}, "What scoring only the first candidates gives and costs: their recall, then quality, then time."),
    el("div", { class: "side three" }, chartFigure("depth-recall", why(["candidate_recall"])), chartFigure("depth-quality", why(["small"])), chartFigure("depth-ms", why(["p95_ms", "small"]))));
}

function support(report) {
  const told = report.support;
  if (!told) return section("support", "Support", absent("it is measured only where --support-tokens asks for it"));
  const rows = Object.keys(told.policies).map((name) => [textCell(name), figureCell(figure(told, "policies", name, "within_k")), figureCell(figure(told, "policies", name, "within_tokens"))]);
  return section("support", "Support", el("p", {}, "Share of queries for which an answer reads a relevant document."),
    ...table("Queries supported", ["Policy", `Within the first ${told.k}`, `Within ${number(told.tokens, 0)} tokens`], rows));
}

function reliabilitySection(report) {
  const told = report.reliability;
  if (!told?.rows.length) return section("reliability", "Reliability", absent(told?.reasons.rows ?? "it was written without the section reliability"));
  const rows = told.rows.map((row) => [
    textCell(`${row.query_class}, top ${row.cutoff}`), numberCell(row.pairs), numberCell(row.predicted, 4), numberCell(row.observed, 4), numberCell(row.ece, 4), numberCell(row.ece_floor, 4), numberCell(row.brier, 4),
  ]);
  return section("reliability", "Reliability",
    el("p", {}, `Whether the calibration's probabilities hold on these queries: of the candidates given a p, how many the large stage puts into its top c. ${number(told.queries, 0)} queries; for ${number(told.left_out, 0)} the calibration does not hold, and they are left out. An ECE at its floor is noise.`),
    chartFigure("reliability", "there are no bins"), ...table("Reliability by class of queries and cutoff", ["Queries, event", "Pairs", "Predicted", "Observed", "ECE", "ECE floor", "Brier"], rows));
}

function ties(report) {
  if (!report.ties) return section("ties", "Ties", absent("it was written without the section ties"));
  const rows = Object.entries(report.ties).map(([stage, told]) => [textCell(stage), numberCell(told.ndcg_over_ties, 4), { text: percent(told.queries_tied), number: true }]);
  return section("ties", "Ties", ...table("How much of each stage's ndcg its ties decide", ["Stage", "ndcg, mean over tied orders", "Queries with a tie in the top k"], rows));
}
