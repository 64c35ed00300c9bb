// A new search: a YAML text with its problems at their lines, and a form that writes the common fields of it.

import { element, fillSelect, number } from "./shared/dom.js";
import { get, post, throttled } from "./api.js";
import { SearchForm } from "./search_form.js";
import { button, fillFrom, problemBox } from "./ui.js";
import { YamlEditor } from "./yaml_editor.js";
import { withValue } from "./yaml_text.js";

const TYPING_MS = 300, DRAFT = "draft";

export function showSearch(main, _, query) {
  const view = new SearchView(query.get("from"));
  const box = element("div", {});
  main.replaceChildren(element("h1", {}, "New search"), box);
  fillFrom(box, "Reading the catalog ...", () => view.load(), () => view.build());
  return () => view.close();
}

class SearchView {
  constructor(from) { this.from = from; this.asked = 0; }
  close() { this.closed = true; this.check?.cancel(); }

  async load() {
    const [{ examples }, catalog, job] = await Promise.all([get("/examples"), get("/catalog"), this.from ? get(`/jobs/${this.from}`) : null]);
    Object.assign(this, { examples, catalog, start: job?.yaml ?? sessionStorage.getItem(DRAFT) ?? examples[0]?.yaml ?? "" });
  }

  build() {
    this.check = throttled(() => this.validate(), TYPING_MS);
    this.editor = new YamlEditor(() => this.changed(), () => this.submit());
    this.form = new SearchForm(this.catalog, (path, value) => this.edited(path, value));
    this.status = element("p", { class: "search-status", role: "status" });
    this.list = element("ul", { id: "yaml-problems", class: "yaml-problems" });
    this.answer = element("div", {});
    this.run = button("Start the search", () => this.submit(), { class: "primary", "aria-keyshortcuts": "Control+Enter" });
    const example = element("select", { id: "example", onchange: () => this.pick(example) });
    fillSelect(example, [["", "choose an example"], ...this.examples.map(({ name, title }) => [name, title])], "");
    this.editor.text = this.start;
    this.editor.draw();
    this.validate();
    return [
      element("div", { class: "row" }, element("label", { for: "example" }, "Start from"), example),
      element("div", { class: "search-grid" },
        element("div", {}, this.editor.root, element("div", { class: "submit-bar" }, this.run, this.status), this.answer, this.list, this.editor.help),
        element("div", { class: "side" }, element("section", {}, element("h2", {}, "Common fields"), this.form.root))),
    ];
  }

  pick(select) {
    const example = this.examples.find(({ name }) => name === select.value);
    if (!example) return;
    this.editor.area.focus();
    this.editor.area.select();
    this.editor.write(example.yaml);  // so that undo brings back what was there
    this.editor.area.setSelectionRange(0, 0);
    this.editor.area.scrollTop = 0;
    select.value = "";
  }

  changed() { sessionStorage.setItem(DRAFT, this.editor.text); this.check(); }

  // A field of the form was changed: write it into the text.
  edited(path, value) {
    this.editor.text = withValue(this.editor.text, path, value, this.document);
    this.document = withPath(this.document, path, value);
    this.changed();
  }

  async validate() {
    const asked = ++this.asked;
    let found;
    try { found = await post("/validate", { yaml: this.editor.text }); } catch (error) {
      if (asked === this.asked) this.answer.replaceChildren(problemBox(error, () => this.validate()));
      return;
    }
    if (asked !== this.asked || this.closed) return;
    this.answer.replaceChildren();
    found.problems.sort((a, b) => (a.line ?? 0) - (b.line ?? 0));
    this.showProblems(found.problems);
    this.run.disabled = !found.valid;
    const { space } = found;
    if (space) {
      this.document = space.document;
      this.form.show(space.document);
      const parts = [`${number(space.combinations)} combination${space.combinations === 1 ? "" : "s"}`, `method ${space.method}`];
      if (space.requests) parts.push(`${number(space.requests)} requests each`);
      if (space.budget) parts.push(`a budget of ${number(space.budget)} evaluations`);
      this.status.textContent = `Valid: ${parts.join(", ")}.`;
    } else {
      if (!this.form.drawn) this.form.show({});
      this.status.textContent = found.problems.length === 1 ? "One problem." : `${found.problems.length} problems.`;
    }
    this.form.showProblems(found.problems);
  }

  showProblems(problems) {
    this.editor.show(problems);
    this.list.replaceChildren(...problems.map(({ field, problem, line }) => element("li", {},
      line ? button(`line ${line}`, () => this.editor.goTo(line), { class: "link" }) : null, line ? " " : null, field ? element("code", {}, field) : null, field ? " " : null, problem)));
  }

  async submit() {
    if (this.sending) return;
    this.sending = this.run.disabled = true;
    this.status.textContent = "Submitting ...";
    try {
      const job = await post("/jobs", { yaml: this.editor.text });
      sessionStorage.removeItem(DRAFT);
      location.hash = `#/runs/${job.id}`;
    } catch (error) {
      this.status.textContent = "Not submitted.";
      this.answer.replaceChildren(problemBox(error.problems.length ? { message: "The search space is not right.", problems: [] } : error));
      this.showProblems(error.problems);
      this.form.showProblems(error.problems);
      this.run.disabled = false;
      if (error.problems[0]?.line) this.editor.goTo(error.problems[0].line);
    } finally { this.sending = false; }
  }
}

function withPath(object, [key, ...rest], value) {
  const held = object !== null && typeof object === "object" && !Array.isArray(object) ? object : {};
  return { ...held, [key]: rest.length ? withPath(held[key], rest, value) : value };
}
