// Load levels, time and money.

function levelsSection(report) {
  const told = report.levels;
  const title = "Load levels";
  if (!told?.length) return section("levels", title, absent("levels are replayed where --release names a release"));
  const rows = told.map((level) => [
    textCell(level.name), figureCell(figure(level, "ndcg"), { digits: 4 }), figureCell(figure(level, "mrr"), { digits: 4 }),
    ...["minus_always_large", "minus_normal"].map((name) => figureCell(figure(level, name), { digits: 4, signed: true })),
    figureCell(figure(level, "large_share")), figureCell(figure(level, "large_pairs"), { digits: 1 }), figureCell(figure(level, "small_pairs"), { digits: 1 }),
  ]);
  return section("levels", title, el("p", {}, "Every level of the release, replayed on the same queries."), chartFigure("levels", "there are none"),
    ...table("Load levels", ["Level", "ndcg", "mrr", "Minus always-large", "Minus normal", "Share of pairs", "Large pairs", "Small pairs"], rows));
}

function latency(report) {
  const told = report.latency;
  const title = "Latency";
  if (!told) return section("latency", title, absent("no service times were asked for"));
  const row = (name, node) => [textCell(name), ...["p50", "p95", "p99"].map((each) => figureCell(figure(node, each), { digits: 1 })), figureCell(figure(node, "in_time"), { told: percent })];
  const rows = [row("always-large", told.always_large), ...told.levels.map((level) => row(level.name, level))];
  const times = ["small", "large"].map((stage) => `${stage} ${number(told.service_times[stage].ms_per_pair, 2)} ms a pair (${told.service_times[stage].source})`);
  const seconds = told.large_seconds_per_1000;
  const large = [["always_large", "always-large"], ["policy", "policy"]].map(([key, name]) => [textCell(name), figureCell(figure(seconds, key), { digits: 1 })]);
  large.push([textCell("saved"), figureCell(figure(seconds, "saved"), { told: percent })]);
  return section("latency", title,
    el("p", {}, `Service times: ${times.join(", ")}, ${number(told.service_times.ms_per_call, 1)} ms a call. Deadline ${told.deadline_ms === null ? "not told" : `${number(told.deadline_ms, 0)} ms`}. Assumes ${told.assumes}.`),
    ...table("Milliseconds of a query, and queries in time", ["", "p50", "p95", "p99", "In time"], rows), ...table("Seconds of the large stage for 1,000 queries", ["", "Seconds"], large));
}

function cost(report) {
  const told = report.cost;
  const title = "Cost";
  if (!told) return section("cost", title, absent("no prices were asked for"));
  const money = { told: significant };
  const rows = told.rows.map((each) => [textCell(each.name), textCell(each.device ?? "as measured"), figureCell(figure(each, "per_1000_in_time"), money), figureCell(figure(each, "per_1000"), money), figureCell(figure(each, "in_time"), { told: percent })]);
  return section("cost", title, el("p", {}, `In the currency of the prices given, at a utilisation of ${told.utilisation}. What late queries cost is borne by those in time.`),
    ...table("Cost of 1,000 queries, by level and device of the large stage", ["Level", "Device", "Per 1,000 in time", "Per 1,000", "In time"], rows), ...told.break_even.flatMap(breakEven));
}

function breakEven(found) {
  const queries = Object.keys(found.queries_per_hour).filter((name) => !["intervals", "reasons"].includes(name));
  const rows = queries.map((name) => [textCell(name), figureCell(figure(found.queries_per_hour, name), { digits: 0 })]);
  return [
    el("h3", {}, `${found.fast} or ${found.slow}`),
    el("p", {}, `A pair is ${significant(found.speed_up)} times as fast on ${found.fast}, at ${significant(found.price_ratio)} times the price of an hour. Kept busy, ${found.cheaper_when_full} is cheaper; both cost the same at ${significant(found.break_even_price_per_hour)} an hour for ${found.fast}. A million pairs cost ${Object.entries(found.per_million_pairs).map(([name, price]) => `${significant(price)} on ${name}`).join(" and ")}.`),
    ...table(`Queries an hour above which one ${found.fast} costs no more than as many ${found.slow} as it takes`, ["", "Queries an hour"], rows),
  ];
}
