// A text area for YAML: line numbers, tabs, and problems shown at their lines.

import { element } from "./shared/dom.js";

const INDENT = "  ", LINE = 20;  // pixels, as in search.css

export class YamlEditor {
  // onChange(): the text changed; onSubmit(): Ctrl+Enter.
  constructor(onChange, onSubmit) {
    this.onChange = onChange;
    this.numbers = element("div", { class: "numbers", "aria-hidden": "true" });
    this.marks = element("div", { class: "marks", "aria-hidden": "true" });
    this.area = element("textarea", {
      id: "yaml", spellcheck: "false", wrap: "off", autocapitalize: "off", autocomplete: "off", "aria-label": "Search space, in YAML", "aria-describedby": "yaml-help yaml-problems",
    });
    this.help = element("p", { id: "yaml-help", class: "hint" }, "Tab indents, Shift+Tab takes back; Escape, then Tab leaves the editor. Ctrl+Enter submits.");
    this.root = element("div", { class: "editor" }, this.numbers, element("div", { class: "lines" }, this.marks, this.area));
    this.problems = [];
    this.area.addEventListener("input", () => this.changed());
    this.area.addEventListener("scroll", () => this.follow());
    this.area.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); onSubmit(); }
      else if (event.key === "Escape") this.leaving = true;
      else if (event.key === "Tab" && !this.leaving && !event.ctrlKey && !event.altKey) { event.preventDefault(); this.indent(event.shiftKey); }
      else if (event.key === "Enter") { event.preventDefault(); this.newLine(); }
    });
    this.area.addEventListener("blur", () => { this.leaving = false; });
  }

  get text() { return this.area.value; }
  set text(text) {
    if (text === this.area.value) return;
    const { selectionStart, scrollTop } = this.area;
    this.area.value = text;
    this.area.selectionStart = this.area.selectionEnd = Math.min(selectionStart, text.length);
    this.area.scrollTop = scrollTop;
    this.draw();
  }

  changed() { this.leaving = false; this.draw(); this.onChange(); }

  // Writing by this command keeps the browser's undo.
  write(text) { document.execCommand("insertText", false, text); }

  indent(back) {
    const { area } = this, { selectionStart: from, selectionEnd: to, value } = area;
    if (from === to && !back) { this.write(INDENT); return; }
    const begin = value.lastIndexOf("\n", from - 1) + 1, lines = value.slice(begin, to).split("\n");
    const next = lines.map((line) => back ? line.replace(/^ {1,2}/, "") : INDENT + line).join("\n");
    area.setSelectionRange(begin, to);
    this.write(next);
    area.setSelectionRange(from === to ? Math.max(begin, from - (lines[0].length - next.length)) : begin, from === to ? Math.max(begin, from - (lines[0].length - next.length)) : begin + next.length);
  }

  // A new line begins where this one does, one deeper after a colon.
  newLine() {
    const { selectionStart: from, value } = this.area, line = value.slice(value.lastIndexOf("\n", from - 1) + 1, from);
    this.write("\n" + line.match(/^ */)[0] + (/:\s*$/.test(line) ? INDENT : ""));
  }

  // problems: [{field, problem, line}]
  show(problems) { this.problems = problems; this.area.setAttribute("aria-invalid", String(problems.length > 0)); this.draw(); }

  draw() {
    const count = this.text.split("\n").length, bad = new Map(this.problems.filter(({ line }) => line).map(({ line, problem }) => [line, problem]));
    this.numbers.replaceChildren(element("div", {}, ...Array.from({ length: count }, (_, i) =>
      element("span", bad.has(i + 1) ? { class: "bad", title: bad.get(i + 1) } : {}, String(i + 1)))));
    this.marks.replaceChildren(...[...bad.keys()].map((line) => {
      const mark = element("i", {});
      mark.dataset.line = line;
      return mark;
    }));
    this.follow();
  }

  follow() {
    const { scrollTop } = this.area;
    if (this.numbers.firstChild) this.numbers.firstChild.style.transform = `translateY(${-scrollTop}px)`;
    for (const mark of this.marks.children) mark.style.transform = `translateY(${(mark.dataset.line - 1) * LINE - scrollTop}px)`;
  }

  goTo(line) {
    const lines = this.text.split("\n"), from = lines.slice(0, line - 1).join("\n").length + (line > 1 ? 1 : 0);
    this.area.focus();
    this.area.setSelectionRange(from, from + (lines[line - 1]?.length ?? 0));
    this.area.scrollTop = Math.max(0, (line - 5) * LINE);
  }
}
