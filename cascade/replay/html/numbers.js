// Figures: a value, its interval, and the reason for what is undefined, as they stand beside each other in a report.

const NONE = "\u2013";

function number(value, digits = 3, signed = false) {
  if (value === null || value === undefined) return NONE;
  const told = Math.abs(value).toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
  const zero = !/[1-9]/.test(told);
  return (value < 0 && !zero ? "\u2212" : signed && !zero ? "+" : "") + told;
}

function significant(value) {
  if (value === null || value === undefined) return NONE;
  return value.toLocaleString("en", { maximumSignificantDigits: 3 });
}

function percent(value, digits = 1) {
  return value === null || value === undefined ? NONE : `${number(100 * value, digits)}%`;
}

function at(node, path) {
  return path.reduce((found, name) => (found === null || found === undefined ? undefined : found[name]), node);
}

// What stands at a path of names: {value, interval, reason}.
function figure(node, ...path) {
  const reason = at(node.reasons, path);
  return { value: at(node, path) ?? null, interval: at(node.intervals, path) ?? null, reason: typeof reason === "string" ? reason : null };
}

// An interval in words; one without width says nothing that the value does not.
function interval(bounds, told = number) {
  return bounds && bounds[0] !== bounds[1] ? `${told(bounds[0])} to ${told(bounds[1])}` : "";
}

// A cell of a table that holds a figure.
function figureCell(found, { digits = 3, signed = false, told = null } = {}) {
  const words = told ?? ((value) => number(value, digits, signed));
  return { text: words(found.value), under: interval(found.interval, words), sort: found.value, reason: found.reason, number: true };
}

function numberCell(value, digits = 0) {
  return { text: number(value, digits), sort: value, number: true };
}

function textCell(text) {
  return { text: text ?? NONE, sort: text ?? "" };
}
