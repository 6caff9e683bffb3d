// The releases, the share that each decides, and the load level that it decides by.

function levels(process) {
  if (!process) return null;
  const chips = process.levels.map((each) =>
    el("li", { class: each === process.level ? "now" : null, "aria-current": each === process.level ? "true" : null }, name(each)));
  const why = process.stepping.pinned ? "pinned by an operator" : `${process.stepping.why}, for ${duration(process.stepping.since_s)}`;
  return ["Load level", el("ol", { class: "levels" }, chips), el("span", { class: "under" }, why)];
}

function stages(process) {
  if (!process) return null;
  const told = Object.entries(process.stages).map(([stage, each]) => {
    const guards = each.guards ? `breaker ${each.guards.breaker.replaceAll("_", " ")}, ${plural(each.guards.in_flight_texts, "text")} in flight` : "computed here";
    return el("li", {}, `${stage}: `, each.unusable ? el("strong", { class: "bad" }, `unusable (${each.unusable})`) : guards);
  });
  return told.length ? ["Stages", el("ul", { class: "plain" }, told)] : null;
}

function card(title, kind, release, ...entries) {
  return el("article", { class: `card ${kind}` }, el("h3", {}, el("span", { class: "swatch", "aria-hidden": "true" }), title),
    el("p", { class: "release" }, name(release)), pairs(...entries));
}

function desiredWords(rollout) {
  const wanted = rollout.desired.digest;
  if (!wanted) return "not known";
  if (wanted === rollout.stable?.digest) return "it is the stable release";
  if (wanted === rollout.candidate?.digest) return "it is the candidate";
  return wanted === rollout.refused?.digest ? "it was turned down" : "it is not active";
}

function releases(rollout, process) {
  const { stable, candidate, desired } = rollout;
  const of = (one, digest) => (one && one.digest === digest ? one : null);
  const cards = [card("Stable", "stable", stable?.release,
    ["Decides", percent(1 - rollout.share)], ["Active since", clock(stable?.activated_at)], levels(of(process, stable?.digest)),
    stages(of(process, stable?.digest)), ["Digest", digest(stable?.digest)], ["Policy", digest(stable?.policy_digest)])];
  if (candidate) {
    const own = of(process.candidate, candidate.digest);
    const asked = [candidate.at_once && "at once", candidate.lenient && "lenient"].filter(Boolean).join(", ");
    cards.push(card("Candidate", "canary", candidate.release,
      ["Decides", percent(rollout.share)], ["Asked for", clock(candidate.asked_at)], ["Downloaded", clock(candidate.downloaded_at)],
      ["Active since", clock(candidate.activated_at)], asked ? ["Asked", asked] : null, levels(own), stages(own), ["Digest", digest(candidate.digest)]));
  }
  if (desired) {
    cards.push(card("Desired", "desired", desired.release ?? NONE,
      ["Now", desiredWords(rollout)], ["Named by", name(desired.source)], ["Looked at", clock(desired.asked_at)],
      desired.fault ? ["Fault", el("strong", { class: "bad" }, name(desired.fault))] : null, ["Digest", digest(desired.digest)]));
  }
  return [candidate ? arms(rollout) : null, el("div", { class: "cards" }, cards)];
}

function arms(rollout) {
  const says = `${rollout.stable?.release} decides ${percent(1 - rollout.share)}, ${rollout.candidate.release} ${percent(rollout.share)}`;
  const edge = 1000 * (1 - rollout.share);
  return drawn("svg", { class: "arms", viewBox: "0 0 1000 14", preserveAspectRatio: "none", role: "img", "aria-label": says },
    drawn("title", {}, says),
    drawn("rect", { class: "stable", x: 0, y: 0, width: edge, height: 14 }),
    drawn("rect", { class: "canary", x: edge, y: 0, width: 1000 - edge, height: 14 }));
}
