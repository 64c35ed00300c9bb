// The list of runs: how far each is, its best plan, and what can be done with it.

import { element, keepingFocus, scrollTable } from "./shared/dom.js";
import { get, listen, post, remove, throttled } from "./api.js";
import { button, chip, confirmed, fillFrom, progressParts, problemBox, when } from "./ui.js";

const PAGE = 50, EVERY_MS = 1000, TYPING_MS = 250;

export function showRuns(main) {
  const view = new RunsView();
  main.replaceChildren(...view.parts);
  view.start();
  return () => view.close();
}

// The buttons for what a job's `can` allows; `done(job or null)` is told what came of it.
export function jobActions(job, done, failed) {
  const act = async (promise) => { try { done(await promise); } catch (error) { failed(error); } };
  const named = (verb) => ({ "aria-label": `${verb} ${job.name}`, "data-key": `${verb}-${job.id}` });
  const actions = {
    cancel: () => button("Cancel", () => act(post(`/jobs/${job.id}/cancel`)), named("Cancel")),
    resume: () => button("Resume", () => act(post(`/jobs/${job.id}/resume`)), named("Resume")),
    delete: () => button("Delete", () => confirmed(`Delete the run “${job.name}” and everything it found?`, "Delete", () => act(remove(`/jobs/${job.id}`))), named("Delete")),
  };
  return job.can.filter((verb) => actions[verb]).map((verb) => actions[verb]());
}

class RunsView {
  constructor() {
    Object.assign(this, { jobs: [], total: 0, offset: 0, picked: [], timer: 0 });
    this.search = element("input", { type: "search", placeholder: "name or model", "aria-label": "Filter by name or model", oninput: throttled(() => { this.offset = 0; this.load(); }, TYPING_MS) });
    this.compare = button("Compare the two", () => { location.hash = `#/compare/runs?a=${this.picked[0]}&b=${this.picked[1]}`; }, { disabled: true });
    this.answer = element("div", { "aria-live": "polite" });
    this.box = element("div", {});
    this.parts = [
      element("div", { class: "row" }, element("h1", {}, "Runs"), this.search, this.compare,
        element("a", { class: "button primary end", href: "#/new" }, "New search")), this.answer, this.box,
    ];
  }

  async start() {
    await fillFrom(this.box, "Reading the list ...", () => this.read(), () => []);
    if (this.closed || this.box.querySelector(".problem")) return;
    this.draw();
    const changed = throttled(() => this.load(), 150);
    const link = document.getElementById("link-state");
    this.stop = listen("/events", { job: changed, deleted: changed }, (up) => { link.textContent = up ? "" : "The service does not answer; trying again ..."; if (up) changed(); });
  }

  close() {
    this.closed = true;
    clearTimeout(this.timer);
    this.stop?.();
    document.getElementById("link-state").textContent = "";
  }

  async read() {
    const answer = await get(`/jobs?limit=${PAGE}&offset=${this.offset}&q=${encodeURIComponent(this.search.value)}`);
    this.jobs = answer.jobs;
    this.total = answer.total;
  }

  async load() {
    clearTimeout(this.timer);
    try { await this.read(); } catch (error) { if (error.status) this.answer.replaceChildren(problemBox(error)); return; }
    if (!this.closed) this.draw();
  }

  draw() {
    clearTimeout(this.timer);
    if (this.jobs.some((job) => job.state === "running" || job.state === "queued")) this.timer = setTimeout(() => this.load(), EVERY_MS);
    this.picked = this.picked.filter((id) => this.jobs.some((job) => job.id === id));
    this.compare.disabled = this.picked.length !== 2;
    keepingFocus(this.box, () => this.box.replaceChildren(...(this.jobs.length ? this.table() : [this.empty()])));
  }

  empty() {
    if (this.search.value) return element("p", { class: "empty-state" }, "No run has that in its name or model.");
    return element("div", { class: "empty-state" }, element("p", {}, "No run yet. A search answers how many GPUs a service needs, and how they should be configured."),
      element("a", { class: "button primary", href: "#/new" }, "Start from an example"));
  }

  table() {
    const heads = ["", "Run", "State", "Progress", "Best plan", "Submitted", ""].map((words) => element("th", { scope: "col" }, words));
    const parts = [scrollTable(heads, this.jobs.map((job) => this.row(job)), { class: "runs" })];
    if (this.total > PAGE) {
      const to = (offset) => () => { this.offset = offset; this.load(); };
      parts.push(element("p", { class: "row" }, button("Newer", to(Math.max(0, this.offset - PAGE)), { disabled: this.offset === 0 }),
        button("Older", to(this.offset + PAGE), { disabled: this.offset + PAGE >= this.total }), `${this.offset + 1} to ${this.offset + this.jobs.length} of ${this.total}`));
    }
    return parts;
  }

  row(job) {
    const tick = element("input", { type: "checkbox", "aria-label": `Compare ${job.name}`, "data-key": `pick-${job.id}`, onchange: () => this.pick(job.id) });
    tick.checked = this.picked.includes(job.id);
    const { share, words } = progressParts(job), busy = job.state === "running";
    const best = job.recommended ? element("a", { href: `#/runs/${job.id}/plans/${job.recommended}`, "data-key": `best-${job.id}` }, `★ ${job.recommended_label ?? job.recommended}`)
      : job.state === "done" ? "none is feasible" : "-";
    return element("tr", {}, element("td", {}, tick),
      element("td", {}, element("a", { href: `#/runs/${job.id}`, "data-key": `run-${job.id}` }, job.name), element("br"), element("small", {}, job.model ?? "")),
      element("td", {}, chip(job.state)),
      element("td", {}, busy ? element("progress", { max: 1, value: share, "aria-label": `Progress of ${job.name}` }) : null, busy ? element("br") : null, element("small", {}, job.problem ?? words)),
      element("td", {}, best), element("td", {}, element("small", {}, when(job.created_at))),
      element("td", { class: "acts" }, ...jobActions(job, () => { this.answer.replaceChildren(); this.load(); }, (error) => this.answer.replaceChildren(problemBox(error)))));
  }

  pick(id) {
    this.picked = this.picked.includes(id) ? this.picked.filter((other) => other !== id) : [...this.picked, id].slice(-2);
    this.draw();
  }
}
