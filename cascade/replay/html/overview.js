// What a reader asks first: on what, does the large stage help, what does the policy get, and may it be believed.

const HELPS = {
  shown: ["good", "The large stage helps.", "Its quality is above the small stage's, beyond the interval."],
  "not shown": ["", "It is NOT SHOWN that the large stage helps.", "These queries do not justify escalating."],
  harms: ["bad", "The large stage is WORSE than the small one on these queries.", "Escalate nothing."],
  silver: ["bad", "NOT JUDGED: quality is silver.", "Nothing here shows how good an answer is, or that the large stage helps."],
};

function metricName(conditions) {
  const name = conditions.metric === "mrr" ? "mrr" : `${conditions.metric}@${conditions.k}`;
  return conditions.judgements === "silver" ? `silver ${name}` : name;
}

function referenceOf(report) {
  return report.policies.find((policy) => policy.name === "policy") ?? report.policies.find((policy) => policy.name === "static");
}

function overview(report) {
  const conditions = report.conditions;
  const [kind, lead, text] = HELPS[conditions.judgements === "silver" ? "silver" : report.large_helps];
  const boxes = [alertBox(kind, lead, text)];
  if (report.engaged < 1) boxes.push(alertBox("", "Not every query is reranked.", `A reranker saw ${percent(report.engaged)} of the queries. Do not call the result reranked.`));
  return [
    el("h1", {}, `${conditions.small} \u2192 ${conditions.large}`),
    el("p", {}, `${number(report.queries, 0)} queries of ${conditions.tables.map((each) => each.name).join(", ")}, ${metricName(conditions)}. Written by cascade eval; intervals are ${percent(conditions.confidence, 0)}, paired bootstrap over queries.`),
    ...boxes,
    ...report.notes.map((note) => el("p", { class: "alert", role: "note" }, el("strong", {}, "Note."), ` ${note}`)),
    tiles(report),
    claimable(report),
    el("details", {}, el("summary", {}, "Conditions of this report"), pairs(conditions)),
  ];
}

function tiles(report) {
  const policy = referenceOf(report);
  const metric = report.conditions.metric;
  const against = report.tests?.pairs.find((pair) => pair.name === policy.name && pair.baseline === "large");
  const cost = (name) => figure(report, "cost_at_recovered", name, "0.95");
  const told = [
    ["Large stage above the small one", figure(report, "gap"), (value) => number(value, 3, true), ""],
    [`Quality of ${policy.name}`, figure(policy, metric), number, ""],
    [`Pairs that ${policy.name} sends to the large stage`, figure(policy, "large_share"), percent, "of always-large"],
    ["Share of pairs at which 95% is recovered", cost(policy.name), percent, policy.name === "policy" ? `static ${percent(cost("static").value)}` : ""],
  ];
  if (against) told.splice(2, 0, [`${policy.name} minus always-large`, { value: against.difference, interval: against.interval }, (value) => number(value, 4, true), ""]);
  const tile = ([name, found, words, more]) =>
    el("div", {}, el("dt", {}, name), el("dd", { class: "big" }, words(found.value)), el("dd", { class: "under" }, [interval(found.interval, words), more, found.value === null ? found.reason : ""].filter(Boolean).join("; ")));
  return el("dl", { class: "tiles" }, told.map(tile));
}

// What the queries are enough to claim of the loss against always-large.
function claimable(report) {
  if (!report.tests) return null;
  const claims = report.tests.non_inferiority.map((claim) =>
    el("li", { class: claim.shown ? "shown" : "not-shown" }, el("strong", {}, `${claim.shown ? "Shown" : "NOT shown"}: loss below ${percent(claim.epsilon)}.`), ` ${claim.says}.`));
  return el("div", { class: "claims" }, el("p", {}, `What ${number(report.queries, 0)} queries are enough to claim of the loss of ${report.tests.subject} against always-large, in ${metricName(report.conditions)}:`), el("ul", {}, claims));
}
