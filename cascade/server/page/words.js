// Numbers and times in words.

const SHARES = new Set(["late", "errors", "fallback", "escalation"]);
const STATES = {
  idle: "idle", activating: "activating", running: "running", completed: "completed", rolled_back: "rolled back", refused: "refused", aborted: "aborted",
  replaced: "replaced",
};
let skew = 0; // how far this clock is before the sidecar's, in milliseconds

function isNumber(value) {
  return typeof value === "number" && Number.isFinite(value);
}

function percent(value, digits = 2) {
  return isNumber(value) ? `${Number((100 * value).toFixed(digits))}%` : NONE;
}

function number(value) {
  if (!isNumber(value)) return NONE;
  if (Number.isInteger(value)) return value.toLocaleString("en");
  return Math.abs(value) < 1e-3 ? value.toExponential(1) : String(Number(value.toPrecision(3)));
}

function figure(guardrail, value, signed = false) {
  if (!isNumber(value)) return NONE;
  const isShare = SHARES.has(guardrail.name) || (guardrail.name === "cost" && signed);
  const said = isShare ? percent(value) : number(value);
  return signed && value > 0 ? `+${said}` : said.replace("-", "\u2212");
}

function duration(seconds) {
  if (!isNumber(seconds)) return NONE;
  if (seconds < 100) return `${Math.round(seconds)} s`;
  if (seconds < 6000) return `${Math.round(seconds / 60)} min`;
  return seconds < 360000 ? `${Math.round(seconds / 3600)} h` : `${Math.round(seconds / 86400)} d`;
}

function ago(written) {
  const seconds = (Date.now() - skew - Date.parse(written)) / 1000;
  return Number.isFinite(seconds) && seconds > -5 ? `${duration(Math.max(0, seconds))} ago` : "";
}

function clock(written) {
  if (!written) return NONE;
  const at = new Date(written);
  if (Number.isNaN(at.getTime())) return el("bdi", {}, String(written));
  const isToday = at.toDateString() === new Date(Date.now() - skew).toDateString();
  const said = isToday ? at.toLocaleTimeString() : at.toLocaleString();
  return [el("time", { datetime: at.toISOString(), title: at.toLocaleString() }, said), " ", el("span", { class: "soft", "data-ago": written }, ago(written))];
}

function growOlder() {
  for (const each of document.querySelectorAll("[data-ago]")) {
    const said = ago(each.dataset.ago);
    if (each.textContent !== said) each.textContent = said;
  }
}

function plural(count, one) {
  return `${number(count)} ${one}${count === 1 ? "" : "s"}`;
}
