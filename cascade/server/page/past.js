// What happened, latest first.

const HAPPENED = { rolled_back: "bad", refused: "bad", aborted: "warn", replaced: "warn", completed: "good" };

function past(history) {
  if (!history.length) return el("p", { class: "absent" }, "Nothing happened yet.");
  return el("ol", { class: "past" }, history.map((each) => {
    const evidence = each.evidence?.guardrails ?? [];
    const asked = [each.at_once && "at once", each.lenient && "lenient"].filter(Boolean).join(", ");
    return el("li", {},
      el("p", {}, el("span", { class: `chip ${HAPPENED[each.what] ?? ""}` }, String(each.what).replaceAll("_", " ")), " ", el("strong", {}, name(each.release)), " ",
        digest(each.digest), each.share > 0 ? ` at ${percent(each.share)}` : "", asked ? `, ${asked} ` : " ", el("span", { class: "when" }, clock(each.at))),
      list(each.why),
      evidence.length ? folded(`${each.at} ${each.what}`, "Evidence of that moment", guardrailTable(`Guardrails of ${each.release}`, evidence)) : null);
  }));
}
