// The page: which view an address shows, and who may see it.

import { element } from "./shared/dom.js";
import { get, post } from "./api.js";
import { problemBox } from "./ui.js";
import { showCompare } from "./compare_view.js";
import { showPlan } from "./plan_view.js";
import { showReplay } from "./replay_view.js";
import { showRun } from "./run_view.js";
import { showRuns } from "./runs_view.js";
import { showSearch } from "./search_view.js";

// A view fills `main` and returns what ends it; parts in braces are its parameters.
const ROUTES = [
  ["/runs", showRuns],
  ["/new", showSearch],
  ["/runs/{job}", showRun],
  ["/runs/{job}/plans/{plan}", showPlan],
  ["/runs/{job}/plans/{plan}/replay", showReplay],
  ["/compare/{kind}", showCompare],
];
const main = document.getElementById("main");
let close = null;

function matched(path) {
  const parts = path.split("/");
  for (const [pattern, view] of ROUTES) {
    const names = pattern.split("/");
    if (names.length !== parts.length) continue;
    const given = {};
    const fits = names.every((name, i) => {
      if (!name.startsWith("{")) return name === parts[i];
      given[name.slice(1, -1)] = decodeURIComponent(parts[i]);
      return parts[i] !== "";
    });
    if (fits) return [view, given];
  }
  return null;
}

function route() {
  const [path, query = ""] = location.hash.slice(1).split("?");
  if (!path.startsWith("/")) { if (path === "") location.replace("#/runs"); return; }
  close?.();
  close = null;
  main.replaceChildren();
  const found = matched(path);
  document.querySelectorAll("header nav a").forEach((link) => {
    if (link.hash === `#${path}`) link.setAttribute("aria-current", "page"); else link.removeAttribute("aria-current");
  });
  if (!found) main.replaceChildren(element("h1", {}, "No such page"), element("p", {}, element("a", { href: "#/runs" }, "To the runs")));
  else close = found[0](main, found[1], new URLSearchParams(query)) ?? null;
  const heading = main.querySelector("h1");
  if (heading) {
    document.title = `${heading.textContent} - Capacity planner`;
    heading.tabIndex = -1;
    heading.focus({ preventScroll: true });
  }
  window.scrollTo(0, 0);
}

// Ask for the token that the service was started with; the cookie it answers with is all that the page keeps.
function askToken() {
  close?.();
  close = null;
  const input = element("input", { id: "token", type: "password", autocomplete: "current-password", required: true });
  const answer = element("div", {});
  const form = element("form", { class: "token" }, element("h1", {}, "This service asks for its token"),
    element("label", { for: "token" }, "Token"), input, element("button", { type: "submit" }, "Enter"), answer);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    try { await post("/session", { token: input.value }); route(); } catch (error) { answer.replaceChildren(problemBox(error)); }
  });
  main.replaceChildren(form);
  input.focus();
}

async function start() {
  document.addEventListener("unauthenticated", askToken);
  window.addEventListener("hashchange", route);
  const session = await get("/session").catch(() => ({ required: false }));
  if (session.required && !session.authenticated) askToken(); else route();
}

start();
