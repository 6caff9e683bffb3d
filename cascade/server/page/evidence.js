// Guardrails with their numbers.

const VERDICTS = { pass: "\u2713 pass", fail: "\u2715 fail", inconclusive: "\u2026 inconclusive" };
const HALF = 56;

// How much of the evidence that a verdict needs there is: 1 decides.
function strength(p, alpha) {
  if (!isNumber(p) || !isNumber(alpha) || alpha <= 0 || alpha >= 1) return null;
  return p <= 0 ? 1 : Math.min(1, Math.max(0, Math.log(p) / Math.log(alpha)));
}

function scale(guardrail) {
  const harm = strength(guardrail.p_harm, guardrail.harm_alpha);
  const pass = strength(guardrail.p_pass, guardrail.pass_alpha);
  if (harm === null && pass === null) return NONE;
  const says = `evidence of harm ${percent(harm ?? 0, 0)}, of being within the limit ${percent(pass ?? 0, 0)} of what decides`;
  const box = { viewBox: `0 0 ${2 * HALF} 12`, width: 2 * HALF, height: 12, role: "img", "aria-label": says, class: "scale" };
  const bar = (kind, x, width) => drawn("rect", { class: kind, x, y: 2, width: Math.max(0, width), height: 8, rx: 1 });
  return drawn("svg", box,
    drawn("title", {}, says),
    bar("track", 0, 2 * HALF),
    bar("harm", HALF - HALF * (harm ?? 0), HALF * (harm ?? 0)),
    bar("good", HALF, HALF * (pass ?? 0)),
    drawn("line", { x1: HALF, x2: HALF, y1: 0, y2: 12 }),
  );
}

function verdict(guardrail) {
  const known = Object.hasOwn(VERDICTS, guardrail.verdict);
  const chip = el("span", { class: `chip ${known ? guardrail.verdict : ""}` }, known ? VERDICTS[guardrail.verdict] : name(guardrail.verdict));
  return guardrail.needed === false ? [chip, el("span", { class: "under" }, "not waited for")] : chip;
}

function guardrailTable(caption, guardrails) {
  const headings = [
    "guardrail", "verdict", "harm \u2190 evidence \u2192 pass", { words: "stable", number: true }, { words: "candidate", number: true },
    { words: "difference", number: true }, { words: "limit", number: true }, { words: "n", number: true }, "why",
  ];
  const rows = guardrails.map((each) => [
    name(String(each.name).replaceAll("_", " ")), verdict(each), scale(each), figure(each, each.stable), figure(each, each.canary),
    figure(each, each.difference, true), figure(each, each.limit, each.name === "cost").replace("+", ""), number(each.n), name(each.why),
  ]);
  return table(caption, headings, rows);
}

// The guardrails of the candidate, or as they stood when the last rollout ended.
function guardrails(rollout, history) {
  if (rollout.candidate && rollout.guardrails.length) {
    return [guardrailTable(`The candidate against the stable release, at step ${(rollout.step ?? 0) + 1}`, rollout.guardrails), within(rollout)];
  }
  const last = history.find((each) => each.evidence?.guardrails?.length);
  const ended = { rolled_back: "rolled back", aborted: "aborted", replaced: "replaced", completed: "completed" };
  if (!rollout.candidate && last && Object.hasOwn(ended, last.what)) {
    return guardrailTable(`${last.release}, as it stood when it was ${ended[last.what]}`, last.evidence.guardrails);
  }
  return el("p", { class: "absent" }, "Nothing is compared: no candidate is tried, or it has no guardrail.");
}

function within(rollout) {
  const rows = rollout.rollback_within.filter((each) => isNumber(each.queries));
  if (!rows.length) return null;
  const told = rows.map((each) => [
    name(String(each.guardrail).replaceAll("_", " ")), `+${number(each.harm)}`, percent(each.share), number(each.queries),
    isNumber(each.seconds) ? duration(each.seconds) : "no traffic",
  ]);
  const headings = ["harm to", { words: "so much worse", number: true }, { words: "share looked at", number: true }, { words: "answers", number: true }, { words: "rolled back within", number: true }];
  return folded("within", "How soon harm is rolled back",
    table("With a probability of 0.99, from the first step with traffic, at the traffic of now", headings, told));
}
