// Ask the routes of the admin listener, with the key where one is asked for.

const KEY = "cascade-admin-key";
const PATIENCE_MS = 5000;

class Turned extends Error {
  constructor(status, why) {
    super(why);
    this.status = status;
  }
}

function keyOfTab() {
  try {
    return sessionStorage.getItem(KEY);
  } catch {
    return null;
  }
}

function keepKey(key) {
  try {
    if (key === null) sessionStorage.removeItem(KEY);
    else sessionStorage.setItem(KEY, key);
  } catch {
    // a browser that keeps nothing asks again when the page is opened again
  }
}

async function ask(path, key) {
  const answer = await fetch(path, {
    headers: key ? { authorization: `Bearer ${key}` } : {},
    cache: "no-store", credentials: "omit", redirect: "error", referrerPolicy: "no-referrer", signal: AbortSignal.timeout(PATIENCE_MS),
  });
  const now = Date.parse(answer.headers.get("date") ?? "");
  if (Number.isFinite(now)) skew = Math.abs(Date.now() - now) > 2000 ? Date.now() - now : 0;
  if (answer.ok) return answer.json();
  const told = await answer.json().catch(() => ({}));
  throw new Turned(answer.status, String(told.error ?? `status ${answer.status}`));
}
