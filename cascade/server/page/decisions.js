// The last decisions. They hold no text of a query or a document.

function decisions(told) {
  if (!told.length) return el("p", { class: "absent" }, "Nothing was decided yet.");
  const headings = [
    "decision", { words: "ago", number: true }, "arm", "release", "level", "tenant", "answered by", "action", { words: "depth", number: true },
    { words: "escalated", number: true }, { words: "ms", number: true }, "degraded",
  ];
  const rows = told.map((each) => [
    el("code", { title: each.decision_id }, String(each.decision_id).slice(0, 12)), duration(each.age_s),
    el("span", { class: `arm ${each.arm === "canary" ? "canary" : "stable"}` }, name(each.arm)), name(each.release), name(each.load_level), name(each.tenant),
    each.outcome === "answered" ? name(each.stage) : el("strong", { class: "bad" }, "refused"), name(each.action), number(each.depth),
    number(each.escalated), number(each.total_ms), each.degraded.length ? name(each.degraded.join(", ").replaceAll("_", " ")) : NONE,
  ]);
  return table(`The last ${told.length}, latest first`, headings, rows, "tall");
}
