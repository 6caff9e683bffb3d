// The page: look at the sidecar again and again, and show what changed.

const LOOK_MS = 2000;
const HISTORY_LOOKS = 15;
const at = (id) => document.getElementById(id);
const part = (id) => at(id).querySelector(":scope > div");
const asksForKey = document.documentElement.dataset.key === "asked";
let key = asksForKey ? keyOfTab() : null;
let history = [];
let mark = null;
let looks = 0;
let timer = null;
let isLooking = false;
let isPaused = false;
let lastAnswer = null;

async function look() {
  clearTimeout(timer);
  if (isLooking || isPaused || (asksForKey && key === null)) return;
  isLooking = true;
  const used = key;
  try {
    const [rollout, process, recent] = await Promise.all([ask("rollout", used), ask("status", used), ask("rollout/decisions", used)]);
    const now = JSON.stringify([rollout.state, rollout.step, rollout.stable, rollout.candidate?.digest, rollout.refused]);
    if (now !== mark || looks % HISTORY_LOOKS === 0) history = (await ask("rollout/history?most=20", used)).history;
    if (used !== key) return;
    showAll(rollout, process, recent.decisions);
    if (mark !== now) at("told").textContent = announced(rollout);
    mark = now;
    looks += 1;
    answered();
  } catch (error) {
    if (used === key) turned(error);
  } finally {
    isLooking = false;
    again();
  }
}

function again() {
  clearTimeout(timer);
  if (!document.hidden) timer = setTimeout(look, LOOK_MS);
}

function showAll(rollout, process, recent) {
  document.title = `${STATES[rollout.state] ?? rollout.state}${rollout.candidate ? ` ${percent(rollout.share)}` : ""}: rollout`;
  at("process").textContent = `cascade ${process.version}, ${process.draining ? "draining" : process.ready ? "ready" : "not ready"}`;
  show(part("standing"), rollout, () => standing(rollout));
  show(part("releases"), [rollout, withoutAges(process)], () => releases(rollout, process));
  show(part("guardrails"), [rollout.candidate, rollout.step, rollout.guardrails, rollout.rollback_within, history[0]], () => guardrails(rollout, history));
  show(part("decisions"), recent, () => decisions(recent));
  show(part("past"), history, () => past(history));
  growOlder();
}

// What a release's card shows of the process; a level that lasts is not drawn anew each time.
function withoutAges(process) {
  const of = (one) => one && [one.digest, one.level, one.levels, one.stepping.pinned, one.stepping.why, Math.floor(one.stepping.since_s / 10), one.stages];
  return [of(process), of(process.candidate)];
}

function answered() {
  lastAnswer = Date.now();
  at("main").hidden = false;
  at("main").classList.remove("stale");
  at("trouble").hidden = true;
  at("ask").hidden = true;
  at("forget").hidden = !asksForKey;
  if (asksForKey) keepKey(key);
  if (!isPaused) tellLive("live", "live");
}

function turned(error) {
  if (asksForKey && error instanceof Turned && (error.status === 401 || error.status === 403)) {
    askForKey(error.status === 401 ? "This key is not known here, or has expired." : "This key may not read: its rights lack read.");
    return;
  }
  const since = lastAnswer === null ? "" : ` What is below is as it was at ${new Date(lastAnswer).toLocaleTimeString()}.`;
  const why = error instanceof Turned ? error.message : "the sidecar does not answer";
  at("trouble").replaceChildren(alertBox("bad", el("strong", {}, "No news: "), name(why), `. It is asked again every ${LOOK_MS / 1000} seconds.${since}`));
  at("trouble").hidden = false;
  at("main").classList.add("stale");
  tellLive("lost", "no answer");
}

function askForKey(why) {
  key = null;
  keepKey(null);
  mark = null;
  forgetShown();
  at("main").hidden = true;
  at("trouble").hidden = true;
  at("forget").hidden = true;
  at("ask").hidden = false;
  at("wrong").textContent = why;
  tellLive("lost", "waits for a key");
  at("key").focus();
}

// What a key showed goes with it.
function forgetShown() {
  for (const place of shown.keys()) place.replaceChildren();
  shown.clear();
  document.title = "Rollout";
  at("process").textContent = "";
  at("told").textContent = "";
}

function tellLive(kind, words) {
  if (at("live").textContent !== words) at("live").textContent = words;
  at("live").className = kind;
}

at("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  const given = at("key").value.trim();
  at("key").value = "";
  if (!/^[\x21-\x7e]+$/.test(given)) {
    askForKey("A key has no spaces, and no letters beyond ASCII.");
    return;
  }
  at("wrong").textContent = "";
  key = given;
  pause(false);
});

at("forget").addEventListener("click", () => askForKey(""));

at("pause").addEventListener("click", () => pause(!isPaused));

function pause(wanted) {
  isPaused = wanted;
  at("pause").setAttribute("aria-pressed", String(isPaused));
  at("pause").textContent = isPaused ? "Go on" : "Pause";
  if (isPaused) tellLive("lost", "paused");
  else look();
}

document.addEventListener("visibilitychange", () => {
  if (!document.hidden) look();
});

if (asksForKey && key === null) askForKey("");
else look();
