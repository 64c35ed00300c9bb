// The form for what most searches change: it reads the document that the YAML stands for, and writes the YAML.

import { element } from "./shared/dom.js";
import { button } from "./ui.js";

const SIZES = [1, 2, 4, 8];
const OPERATORS = ["<=", ">="];

const listed = (value) => value === undefined || value === null ? [] : Array.isArray(value) ? value : [value];

export class SearchForm {
  // catalog: the service's; onEdit(path, value): a field was changed.
  constructor(catalog, onEdit) {
    this.catalog = catalog;
    this.onEdit = onEdit;
    this.fields = new Map();  // the beginning of a field path -> {box, message}
    this.root = element("form", { class: "search-form", "aria-label": "Common fields", onsubmit: (event) => event.preventDefault() });
  }

  // Show what `document` says; null: the YAML cannot be read.
  show(document) {
    this.document = document;
    if (this.root.contains(globalThis.document.activeElement) && this.drawn) { this.refresh(); return; }
    this.fields.clear();
    this.root.replaceChildren(this.text("name", "Name", ["name"]), this.model(), this.gpus(), this.sizes(), this.replicas(), this.load(), this.limits());
    this.drawn = true;
  }

  // The values anew, without taking the focus from the field that is being edited.
  refresh() {
    for (const { update } of this.fields.values()) update?.();
  }

  at(path) { return path.reduce((value, key) => value?.[key], this.document); }
  edit(path, value) { this.onEdit(path, value); }

  field(path, legend, control, update) {
    const message = element("p", { class: "field-problem", id: `problem-${path}`, hidden: true });
    const box = element("div", { class: "field" }, legend, control, message);
    this.fields.set(path, { box, message, update });
    update?.();
    return box;
  }

  text(id, words, path, attributes = {}) {
    const input = element("input", { id: `form-${id}`, "aria-describedby": `problem-${path.join(".")}`, ...attributes, onchange: () => this.edit(path, input.value) });
    return this.field(path.join("."), element("label", { for: `form-${id}` }, words), input, () => { if (input !== document.activeElement) input.value = this.at(path) ?? ""; });
  }

  model() {
    const list = element("datalist", { id: "models" }, ...this.catalog.models.map(({ name }) => element("option", { value: name })));
    const box = this.text("model", "Model", ["model"], { list: "models", autocomplete: "off" });
    box.append(list);
    return box;
  }

  boxes(path, words, options) {
    const inputs = options.map(([value, ...words]) => {
      const input = element("input", { type: "checkbox", onchange: () => this.edit(path, inputs.filter((each) => each.checked).map((each) => each.given)) });
      input.given = value;
      return Object.assign(input, { words });
    });
    const update = () => {
      const given = listed(this.at(path)).map(String);
      for (const input of inputs) input.checked = given.includes(String(input.given));
    };
    const group = element("fieldset", { "aria-describedby": `problem-${path.join(".")}` }, element("legend", {}, words),
      element("div", { class: options.length > 8 ? "gpus" : "boxes" }, ...inputs.map((input) => element("label", { class: "check" }, input, " ", ...input.words))));
    return this.field(path.join("."), "", group, update);
  }

  gpus() {
    return this.boxes(["space", "gpu"], "GPUs that may be bought", this.catalog.gpus.map(({ name, price_usd_per_hour: price }) =>
      [name, name, " ", price === null || price === undefined ? "" : element("small", {}, `$${price.toFixed(2)}/h`)]));
  }
  sizes() { return this.boxes(["space", "tensor_parallel_size"], "Tensor parallel size", SIZES.map((size) => [size, String(size)])); }

  number(words, read, write, attributes = {}) {
    const input = element("input", { type: "number", ...attributes, onchange: () => { if (input.value !== "") write(Number(input.value)); } });
    input.update = () => { if (input !== document.activeElement) { const value = read(); input.value = value ?? ""; input.disabled = value === undefined && attributes.optional !== undefined; } };
    return [element("label", {}, `${words} `, input), input];
  }

  replicas() {
    const path = ["space", "replicas"];
    const ends = () => {
      const value = this.at(path);
      if (value !== null && typeof value === "object" && !Array.isArray(value)) return [value.min, value.max];
      const numbers = listed(value).map(Number);
      return numbers.length ? [Math.min(...numbers), Math.max(...numbers)] : [1, 1];
    };
    const range = (which, value) => {
      const [min, max] = ends(), next = which ? { min: Math.min(min, value), max: value } : { min: value, max: Math.max(max, value) };
      const held = this.at(path);
      this.edit(path, held !== null && typeof held === "object" && !Array.isArray(held) ? { ...held, ...next } : next);
    };
    const [least, a] = this.number("from", () => ends()[0], (value) => range(0, value), { min: 1, step: 1 });
    const [most, b] = this.number("to", () => ends()[1], (value) => range(1, value), { min: 1, step: 1 });
    return this.field("space.replicas", "", element("fieldset", { "aria-describedby": "problem-space.replicas" }, element("legend", {}, "Replicas"), element("div", { class: "boxes" }, least, most)), () => { a.update(); b.update(); });
  }

  load() {
    const rate = ["workload", "arrival", "rate_rps"], count = ["workload", "num_requests"];
    const [perSecond, a] = this.number("requests/s", () => this.at(rate), (value) => this.edit(rate, value), { min: 0, step: "any", optional: "" });
    const [number, b] = this.number("requests in all", () => this.at(count), (value) => this.edit(count, value), { min: 1, step: 1, optional: "" });
    return this.field("workload", "", element("fieldset", { "aria-describedby": "problem-workload" }, element("legend", {}, "Load"), element("div", { class: "boxes" }, perSecond, number)), () => { a.update(); b.update(); });
  }

  limits() {
    const rows = element("div", { class: "limits" });
    const update = () => {
      if (rows.contains(document.activeElement)) return;
      rows.replaceChildren(...listed(this.at(["slo"])).map((limit) => this.limit(rows, String(limit))));
    };
    const add = button("Add a limit", () => { rows.append(this.limit(rows, "ttft_p99_ms <= 1000")); this.write(rows); });
    return this.field("slo", "", element("fieldset", { "aria-describedby": "problem-slo" }, element("legend", {}, "Limits to hold (SLO and budget)"), rows, add), update);
  }

  limit(rows, text) {
    const [, metric, operator, value] = text.match(/^\s*(\S+)\s*(<=|>=|<|>|==)\s*(.*)$/) ?? [null, text, "<=", ""];
    const names = this.catalog.metrics.map((known) => known.name);
    const options = (known, given) => [...new Set([given, ...known])].map((name) => element("option", { value: name }, name));
    const write = () => this.write(rows);
    const what = element("select", { "aria-label": "Metric", onchange: write }, ...options(names.filter((name) => !name.includes(".")), metric));
    const sign = element("select", { "aria-label": "Operator", onchange: write }, ...options(OPERATORS, operator));
    const limit = element("input", { "aria-label": "Limit", value: value.trim(), size: 7, onchange: write });
    [what.value, sign.value] = [metric, operator];
    const row = element("div", { class: "limit" }, what, sign, limit, button("×", () => { row.remove(); this.write(rows); }, { "aria-label": "Remove this limit" }));
    return row;
  }
  write(rows) {
    this.edit(["slo"], [...rows.children].map((row) => [...row.querySelectorAll("select, input")].map((control) => control.value).join(" ")));
  }

  // Put each problem next to the field it is about; returns those that no field here is about.
  showProblems(problems) {
    for (const { box, message } of this.fields.values()) { message.hidden = true; box.classList.remove("invalid"); box.querySelectorAll("[aria-invalid]").forEach((control) => control.removeAttribute("aria-invalid")); }
    for (const { field, problem } of problems) {
      const path = [...this.fields.keys()].filter((known) => field === known || field.startsWith(`${known}.`) || field.startsWith(`${known}[`)).sort((a, b) => b.length - a.length)[0];
      if (path === undefined) continue;
      const { box, message } = this.fields.get(path);
      const said = (field[path.length] === "." ? `${field.slice(path.length + 1)}: ` : "") + problem;
      message.textContent = message.hidden ? said : `${message.textContent}; ${said}`;
      message.hidden = false;
      box.classList.add("invalid");
      box.querySelector("input, fieldset")?.setAttribute("aria-invalid", "true");
    }
  }
}
