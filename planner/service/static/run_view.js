// A run: how far it is, its front as it grows, the answer, and everything there is to download.

import { element, number, scrollTable } from "./shared/dom.js";
import { FrontView } from "./shared/front.js";
import { address, get, listen, throttled } from "./api.js";
import { jobActions } from "./runs_view.js";
import { button, chip, facts, fillFrom, panel, problemBox, progressParts } from "./ui.js";

const FRONT_MS = 1000;

export function showRun(main, { job }) {
  const view = new RunView(job);
  main.replaceChildren(...view.parts);
  view.start();
  return () => view.close();
}

class RunView {
  constructor(id) {
    Object.assign(this, { id, job: null, front: null, warnings: [], ended: new AbortController() });
    this.heading = element("h1", {}, `Run ${id}`);
    this.status = element("div", { class: "row", role: "status" });
    this.bar = element("progress", { max: 1, "aria-label": "Progress of the search" });
    this.words = element("p", { class: "hint" });
    this.notes = element("div", {});
    this.answer = element("div", {});
    this.frontRoot = element("div", { class: "front" });
    this.against = element("div", { class: "actions" });
    this.frontBox = element("section", {}, element("h2", {}, "Plans found"), this.frontRoot, this.against);
    this.after = element("div", {});
    this.yaml = element("pre", { tabindex: 0, "aria-label": "The search space as submitted" });
    this.source = element("section", {}, element("details", {}, element("summary", {}, "The search space as submitted"), this.yaml,
      element("p", {}, element("a", { class: "button", href: `#/new?from=${id}` }, "Start a new search from it"))));
    this.parts = [element("p", { class: "crumbs" }, element("a", { href: "#/runs" }, "Runs"), ` › ${id}`), this.heading, this.status, this.bar,
      this.words, this.notes, this.answer, this.frontBox, this.after, this.source];
    this.loadFront = throttled(() => this.readFront(), FRONT_MS);
  }

  async start() {
    this.frontBox.hidden = this.source.hidden = this.bar.hidden = true;
    try {
      const job = await get(`/jobs/${this.id}`, this.ended.signal);
      this.yaml.textContent = job.yaml;
      this.source.hidden = false;
      this.show(job);
    } catch (error) { this.failed(error); return; }
    this.follow();
  }

  follow() {
    if (this.closed) return;
    const link = document.getElementById("link-state");
    this.stop?.();
    this.stop = listen(`/jobs/${this.id}/events`, {
      state: (job) => this.show(job),
      progress: (progress) => this.show({ ...this.job, progress }),
      warning: ({ text }) => { this.warnings = [...new Set([...this.warnings, text])]; this.writeNotes(); },
      end: (job, close) => { close(); this.show(job); },
    }, (up) => { link.textContent = up ? "" : "The service does not answer; trying again ..."; });
  }

  close() {
    this.closed = true;
    this.ended.abort();
    this.loadFront.cancel();
    this.stop?.();
    this.front?.close();
    document.getElementById("link-state").textContent = "";
  }

  failed(error) { if (error.name !== "AbortError") this.notes.replaceChildren(problemBox(error)); }

  show(job) {
    const before = this.job?.state;
    this.job = job;
    this.heading.textContent = job.name;
    document.title = `${job.name} (${job.state}) - Capacity planner`;
    const { share, words } = progressParts(job);
    this.bar.hidden = job.state !== "running" && job.state !== "queued";
    if (share === null) this.bar.removeAttribute("value"); else this.bar.value = share;
    this.words.textContent = words;
    if (job.progress?.done && (before !== job.state || job.progress.done !== this.done)) { this.done = job.progress.done; this.loadFront(); }
    if (before !== job.state) {
      this.status.replaceChildren(chip(job.state), element("span", {}, job.model ?? ""),
        ...jobActions(job, (next) => { if (next === null) location.hash = "#/runs"; else { this.show(next); this.follow(); } }, (error) => this.failed(error)));
      this.writeNotes();
      if (!["queued", "running"].includes(job.state) && job.progress?.done) this.readAnswer();
      else { this.answer.replaceChildren(); this.after.replaceChildren(); }
    }
  }

  writeNotes() {
    const { job, warnings } = this;
    const parts = warnings.map((text) => element("p", { class: "hint" }, `Warning: ${text}`));
    if (job?.problem) parts.unshift(problemBox({ message: job.problem, problems: job.problems }));
    this.notes.replaceChildren(...parts);
  }

  async readFront() {
    let data;
    try { data = await get(`/jobs/${this.id}/view`, this.ended.signal); } catch (error) {
      if (error.status === 409 || error.status === 0) return;  // nothing yet, or the service is away: an event will tell
      this.failed(error);
      return;
    }
    if (this.closed) return;
    this.frontBox.hidden = false;
    if (this.front) { this.front.update(data); return; }
    this.front = new FrontView(this.frontRoot, data, {
      link: (plan) => `#/runs/${this.id}/plans/${plan.id}`, onChoose: (picked) => this.writeChoice(picked),
    });
  }

  // With two plans chosen there is more to see than their figures.
  writeChoice(picked) {
    const [a, b] = picked.slice(-2);
    this.against.replaceChildren(...(b ? [element("a", { class: "button", href: `#/compare/plans?a=${this.id}/${a.id}&b=${this.id}/${b.id}` },
      `Latencies of ${a.label} ${a.id} against ${b.label} ${b.id}`)] : []));
  }

  readAnswer() {
    const { id, job } = this;
    fillFrom(this.answer, "Reading the answer ...", () => get(`/jobs/${id}/result`, this.ended.signal), (result) => answerPanels(id, result, job));
    fillFrom(this.after, "Reading what there is to download ...",
      async () => [await get(`/jobs/${id}/artefacts`, this.ended.signal), await get("/catalog", this.ended.signal)],
      ([{ artefacts }, { export_targets: targets }]) => downloads(id, artefacts, job.recommended || !this.front ? targets : []));
  }
}

function answerPanels(id, result, job) {
  const rows = [], plan = result.recommended;
  if (plan) rows.push(["Plan", element("a", { href: `#/runs/${id}/plans/${plan}` }, `★ ${[job.recommended_label, plan].filter(Boolean).join(", ")}`)]);
  if (result.why) rows.push(["Why this one", result.why]);
  rows.push(...(result.certainty ?? []), ...(result.costs ?? []), ...(result.kinds ?? []), ["Searched", result.searched]);
  const parts = [element("p", { class: "lead" }, result.headline), facts(rows.filter(([, words]) => words))];
  if (result.margins?.length) parts.push(element("h3", {}, "Margin to each limit"), marginTable(result.margins));
  if (!plan && result.nearest?.length) {
    parts.push(element("h3", {}, "What comes nearest"), scrollTable(["TP x replicas", "GPU", "What it lacks"].map((w) => element("th", { scope: "col" }, w)),
      result.nearest.map((near) => element("tr", {}, element("td", {}, element("a", { href: `#/runs/${id}/plans/${near.id}` }, near.label)), element("td", {}, near.gpu), element("td", {}, near.lacks)))));
  }
  const out = [...(result.ruled_out?.simulated ?? []), ...(result.ruled_out?.not_simulated ?? [])];
  const side = [facts(result.question ?? [])];
  if (out.length) {
    side.push(element("h3", {}, "What was ruled out, and why"), scrollTable([element("th", { scope: "col" }, "Reason"), element("th", { scope: "col", class: "n" }, "Candidates")],
      out.map((reason) => element("tr", {}, element("td", {}, reason.text), element("td", { class: "n" }, number(reason.count))))));
  }
  const head = job.state === "done" ? "Answer" : "Answer so far";
  return [element("div", { class: "two" }, panel(head, ...parts), panel("Question", ...side))];
}

export function marginTable(margins) {
  const heads = [["Limit"], ["Simulated", "n"], ["Share of the limit used"]].map(([words, kind]) => element("th", { scope: "col", class: kind }, words));
  return scrollTable(heads, margins.map((margin) => {
    const upper = margin.operator.includes("<");
    const used = upper ? margin.value / (margin.limit || 1) : margin.limit / (margin.value || 1);
    return element("tr", {}, element("td", {}, margin.words), element("td", { class: "n" }, number(margin.value)),
      element("td", {}, element("meter", { min: 0, max: 1, value: Math.min(1, Math.max(0, used)), "aria-label": `${margin.metric}: share of the limit used` }), ` ${number(Number((100 * used).toPrecision(3)))}%`));
  }));
}

function downloads(id, artefacts, targets) {
  const link = (name, url, attributes = {}) => element("a", { class: "button", href: url, ...attributes }, name);
  const files = artefacts.filter(({ name }) => !name.startsWith("plans/"));
  const report = files.find(({ name }) => name === "report.html");
  const parts = [element("div", { class: "downloads" }, report ? link("Open the report", report.url, { target: "_blank", rel: "noopener", class: "button primary" }) : null,
    ...files.map(({ name, url }) => link(name, `${url}?download=1`, { download: "" })))];
  if (targets.length) parts.push(element("h3", {}, "Configurations of the best plans, as a zip"), exportsOf(id, targets));
  return [panel("Downloads", ...parts)];
}

// A zip by target; a refusal (a policy without a real counterpart) is said here.
function exportsOf(id, targets) {
  const answer = element("div", { "aria-live": "polite" });
  const fetchZip = async (target) => {
    answer.replaceChildren();
    const response = await fetch(address(`/jobs/${id}/exports/${target}?top_k=3`)).catch(() => null);
    if (!response?.ok) {
      const problem = await response?.json().catch(() => ({}));
      answer.replaceChildren(problemBox({ message: problem?.detail ?? "The service cannot be reached.", problems: problem?.problems ?? [] }));
      return;
    }
    const url = URL.createObjectURL(await response.blob());
    element("a", { href: url, download: `${id}-${target}.zip` }).click();
    setTimeout(() => URL.revokeObjectURL(url), 1e4);
  };
  return element("div", {}, element("div", { class: "downloads" }, ...targets.map((target) => button(target, () => fetchZip(target)))), answer);
}
