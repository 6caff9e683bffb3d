// Where a rollout stands: one sentence, its steps, and what it waits for.

const KINDS = { running: "", activating: "", completed: "good", rolled_back: "bad", refused: "bad", aborted: "warn", replaced: "warn", idle: "" };

function headline(rollout) {
  const stable = name(rollout.stable?.release);
  const candidate = name(rollout.candidate?.release);
  const gone = name(rollout.refused?.release);
  switch (rollout.state) {
    case "activating": return [candidate, " is being activated"];
    case "running": return rollout.share > 0 ? [candidate, ` decides ${percent(rollout.share)} of the traffic`] : [candidate, " is scored beside answers, without traffic"];
    case "completed": return [stable, " decides all traffic"];
    case "rolled_back": return [gone, " was rolled back"];
    case "refused": return [gone, ` was refused at the step ${rollout.refused?.step ?? NONE}`];
    case "aborted": return [gone, " was aborted"];
    case "replaced": return [gone, " was replaced"];
    default: return ["No rollout is under way"];
  }
}

function under(rollout) {
  const stable = name(rollout.stable?.release);
  if (rollout.state === "activating") return ["Step of the activation: ", name(rollout.activation_step), ". ", stable, " decides all traffic."];
  if (rollout.state === "running") return ["Step ", String((rollout.step ?? 0) + 1), ` of ${rollout.steps.length}. The rest of the traffic is decided by `, stable, "."];
  if (rollout.state === "completed") return ["Since ", clock(rollout.stable?.activated_at), "."];
  return [stable, " decides all traffic."];
}

function steps(rollout) {
  if (!rollout.candidate || !rollout.steps.length) return null;
  const skipped = new Set(rollout.promoted_without_evidence);
  return el("ol", { class: "steps", "aria-label": "Steps" }, rollout.steps.map((share, place) => {
    const when = place < rollout.step ? "done" : place === rollout.step ? "now" : "next";
    return el("li", { class: when, "aria-current": when === "now" ? "step" : null },
      el("span", { class: "share" }, share === 0 ? "beside" : `${number(share)}%`),
      el("span", { class: "under" }, when, skipped.has(place) ? ", without evidence" : ""));
  }));
}

function standing(rollout) {
  const gone = ["rolled_back", "refused", "aborted", "replaced"].includes(rollout.state) ? rollout.refused : null;
  const again = gone && rollout.desired?.digest === gone.digest ? rollout.desired.tried_again_at : null;
  const card = el("div", { class: `card standing ${KINDS[rollout.state] ?? ""}` },
    el("p", { class: "state" }, el("span", { class: `chip ${KINDS[rollout.state] ?? ""}` }, STATES[rollout.state] ?? name(rollout.state))),
    el("h2", {}, headline(rollout)),
    el("p", {}, under(rollout)),
    gone ? [el("p", { class: "soft" }, clock(gone.at)), list(gone.why)] : null,
    again ? el("p", {}, "It is tried again at ", clock(again)) : null,
    steps(rollout),
    rollout.waits_for.length ? [el("h3", {}, "The step waits for"), list(rollout.waits_for)] : null,
  );
  const unkept = rollout.state_fault;
  return [card, unkept ? alertBox("bad", el("strong", {}, "The state of rollouts cannot be kept: "), name(unkept), ". A restart goes on from what was kept last.") : null];
}

function announced(rollout) {
  return `${STATES[rollout.state] ?? rollout.state}: ${el("p", {}, headline(rollout)).textContent}`;
}
