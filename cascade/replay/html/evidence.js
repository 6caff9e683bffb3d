// What may be believed: tests, and what these queries are enough to claim.

function evidence(report) {
  const title = "Statistics";
  const told = report.tests;
  if (!told) return section("tests", title, absent("it was written without the section tests"));
  return section("tests", title, el("p", {}, told.method),
    ...comparisons(`Comparisons of ${told.subject}`, told.pairs), ...claims(told), power(told.power), ...perTable(told));
}

function comparisons(caption, pairs) {
  const optional = pairs.every((pair) => "effect_size" in pair);
  const rows = pairs.map((pair) => [
    textCell(`${pair.name} minus ${pair.baseline}`),
    figureCell({ value: pair.difference, interval: pair.interval, reason: pair.reasons.interval }, { digits: 4, signed: true }),
    numberCell(pair.p, 4), numberCell(pair.p_holm, 4),
    ...(optional ? [
      { ...numberCell(pair.effect_size, 3), reason: pair.reasons.effect_size },
      { text: `${percent(pair.better, 0)} / ${percent(pair.equal, 0)} / ${percent(pair.worse, 0)}`, number: true },
    ] : []),
  ]);
  return table(caption, ["Comparison", "Difference", "p", "p, Holm", ...(optional ? ["Effect size", "Better / equal / worse"] : [])], rows);
}

function claims(told) {
  const rows = told.non_inferiority.map((claim) => [
    textCell(percent(claim.epsilon)), textCell(claim.shown ? "shown" : "NOT shown"), numberCell(claim.p_betting, 4), numberCell(claim.p, 4),
    numberCell(claim.queries_least), numberCell(claim.queries_needed), { ...textCell(claim.says), wide: true },
  ]);
  return [
    el("h3", {}, "Is the loss against always-large below epsilon?"),
    ...table(`${told.subject} against large, at ${percent(1 - told.non_inferiority[0].delta, 0)} confidence`, ["Epsilon", "", "p, betting", "p, asymptotic", "Queries at least", "Queries needed", "In words"], rows),
  ];
}

function power(told) {
  const detect = told.queries_to_detect?.map(([epsilon, queries]) => `${percent(epsilon)}: ${queries === null ? "none are enough" : number(queries, 0)}`).join("; ");
  return el("p", { class: "soft" }, told.detectable_loss === null
    ? `Power: ${Object.values(told.reasons)[0]}.`
    : `Mean loss ${number(told.mean_loss, 4)}, spread ${number(told.sigma, 4)}. A test of ${number(told.queries, 0)} queries detects a loss of ${number(told.detectable_loss, 4)} with power ${told.power}. Queries to detect ${detect}.`);
}

function perTable(told) {
  if (told.per_table.length < 2) return [];
  const parts = [...told.per_table.map((each) => [`${each.table}, ${number(each.queries, 0)} queries`, each.pairs]), ["Mean of the tables, each counts the same", told.macro.pairs]];
  return [el("h3", {}, "By table"), ...parts.flatMap(([caption, pairs]) => comparisons(caption, pairs))];
}
