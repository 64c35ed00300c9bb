// Pieces that several views are made of.

import { element, number } from "./shared/dom.js";

export const button = (words, onclick, attributes = {}) => element("button", { type: "button", onclick, ...attributes }, words);
export const facts = (rows) => element("dl", { class: "facts" },
  ...rows.flatMap(([heading, words]) => [element("dt", {}, heading), element("dd", {}, words)]));
export const panel = (heading, ...children) => element("section", {}, element("h2", {}, heading), ...children);
export const chip = (state) => element("span", { class: `chip ${state}` }, state);
export const waiting = (words) => element("p", { class: "waiting", role: "status" }, element("span", { class: "spinner", "aria-hidden": "true" }), ` ${words}`);

export function problemBox(error, retry) {
  const problems = (error.problems ?? []).map(({ field, problem, line }) =>
    element("li", {}, line ? `line ${line}: ` : "", field ? element("code", {}, field) : "", field ? " " : "", problem));
  return element("div", { class: "problem", role: "alert" }, element("p", {}, error.message),
    problems.length ? element("ul", {}, ...problems) : null, retry ? button("Try again", retry) : null);
}

// Fill `box` with what `load()` promises, by way of `render(value)`; says that it waits, and what went wrong.
export async function fillFrom(box, words, load, render) {
  box.replaceChildren(waiting(words));
  box.setAttribute("aria-busy", "true");
  try {
    const made = render(await load());
    box.replaceChildren(...(Array.isArray(made) ? made : [made]));
  } catch (error) {
    if (error.name === "AbortError") return;
    if (error.status === undefined) console.error(error);
    box.replaceChildren(problemBox(error, () => fillFrom(box, words, load, render)));
  } finally {
    box.removeAttribute("aria-busy");
  }
}

export function seconds(value) {
  if (value === null || value === undefined) return "-";
  if (value < 60) return `${value < 9.95 ? value.toFixed(1) : Math.round(value)} s`;
  const minutes = Math.round(value / 60);
  return minutes < 60 ? `${minutes} min` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}
export const when = (since) => since === null || since === undefined ? "-" : new Date(1e3 * since).toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "short" });

// How far a search is, from a job's `progress`: a bar, and words.
export function progressParts(job) {
  const { progress } = job;
  if (job.state === "queued") return { share: null, words: job.position ? `waits, ${job.position} before it` : "waits, next" };
  if (!progress) return { share: null, words: job.state === "running" ? "starting" : "" };
  const { done, ruled_out: out, expected, feasible, front, rate_per_s: rate, left_s: left } = progress;
  const parts = [`${number(done)} simulated`, `${number(out)} ruled out`, `${number(feasible)} feasible`, `${number(front)} on the front`];
  if (job.state === "running" && rate) parts.push(`${Number(rate.toPrecision(2))}/s`);
  if (job.state === "running" && left) parts.push(`about ${seconds(left)} left`);
  else if (job.state === "running" && expected && done >= expected) parts.push("now judging how sure the front is");
  const share = job.state === "done" ? 1 : expected ? Math.min(1, done / expected) : null;
  return { share, words: parts.join(", ") };
}

// Ask before something that cannot be undone.
export function confirmed(question, verb, action) {
  const dialog = document.getElementById("dialog");
  const form = element("form", { method: "dialog" }, element("p", { id: "dialog-words" }, question), element("p", { class: "actions" },
    element("button", { value: "yes", class: "danger" }, verb), element("button", { value: "no", autofocus: true }, "Keep it")));
  dialog.setAttribute("aria-labelledby", "dialog-words");
  dialog.replaceChildren(form);
  dialog.onclose = () => { if (dialog.returnValue === "yes") action(); };
  dialog.returnValue = "";
  dialog.showModal();
}
