// Talking to the service: requests, what went wrong with them, and streams of events.

const BASE = "/api/v1";
const RETRY_MS = 1000;

// What the service answers when it refuses; `problems` lists [{field, problem, line}] where the input is at fault.
export class ApiError extends Error {
  constructor(status, detail, problems = []) {
    super(detail);
    this.status = status;
    this.problems = problems;
  }
}

async function ask(method, path, body, signal) {
  const options = { method, signal, headers: { Accept: "application/json" } };
  if (body !== undefined) {
    options.headers["Content-Type"] = "application/json";
    options.body = JSON.stringify(body);
  }
  let response;
  try {
    response = await fetch(BASE + path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, "The service cannot be reached.");
  }
  if (response.ok) return response.status === 204 ? null : response.json();
  const problem = await response.json().catch(() => ({}));
  if (response.status === 401 && path !== "/session") document.dispatchEvent(new CustomEvent("unauthenticated"));
  throw new ApiError(response.status, problem.detail ?? response.statusText, problem.problems ?? []);
}

export const get = (path, signal) => ask("GET", path, undefined, signal);
export const post = (path, body = {}, signal) => ask("POST", path, body, signal);
export const remove = (path) => ask("DELETE", path);
export const address = (path) => BASE + path;

// Listen to a stream of events. handlers: {EVENT: (data) => ...}; `onLink(up)` says whether the service is there.
// The browser connects again by itself, with Last-Event-ID; where it gives up (a refusal), this does. A page that nobody
// sees does not listen: browsers allow six connections to a service, over all of its pages. Returns what ends it.
export function listen(path, handlers, onLink = () => {}) {
  let source = null, timer = 0, closed = false;
  const pause = () => { clearTimeout(timer); source?.close(); };
  const seen = () => { pause(); if (!document.hidden) open(); };
  const close = () => { closed = true; pause(); document.removeEventListener("visibilitychange", seen); };
  const open = () => {
    source = new EventSource(BASE + path);
    source.onopen = () => onLink(true);
    source.onerror = () => {
      if (closed) return;
      onLink(false);
      if (source.readyState === EventSource.CLOSED) timer = setTimeout(open, RETRY_MS);
    };
    for (const [name, handler] of Object.entries(handlers)) {
      source.addEventListener(name, (event) => handler(JSON.parse(event.data), close));
    }
  };
  document.addEventListener("visibilitychange", seen);
  if (!document.hidden) open();
  return close;
}

// Call `action` at most once in `ms`, and once more after the last call.
export function throttled(action, ms) {
  let timer = 0, last = 0;
  const call = () => {
    if (timer) return;
    timer = setTimeout(() => { timer = 0; last = performance.now(); action(); }, Math.max(0, last + ms - performance.now()));
  };
  call.cancel = () => clearTimeout(timer);
  return call;
}
