// The interactive front: the plot with its filters, the plans side by side, and the list of all.

import { element, fillSelect, keepingFocus, naturally, number, shape } from "./dom.js";
import { drawFront, markFront } from "./front_plot.js";
import { CROSS, GLYPHS, STAR, legendEntry } from "./glyphs.js";
import { compareTable, planList } from "./plan_tables.js";
import { figure, firstChoice, initialAxes, initialColour, metricIndex, settings, starredTitle } from "./plans.js";

const MAX_CHOSEN = 6, MAX_VALUES = 40;
const MOVES = { ArrowRight: 1, ArrowLeft: -1, ArrowUp: 1, ArrowDown: -1, Home: "first", End: "last" };

export class FrontView {
  // Fills `root` with the plans of `data` (see plans.js). options: {link(plan): where a plan's title leads,
  // heading: tag of the headings inside, onChoose(ids)}.
  constructor(root, data, options = {}) {
    this.root = root;
    this.options = options;
    this.data = data;
    this.state = { x: null, y: null, colour: null, filters: {}, active: null, sort: null, more: false, chosen: null };
    this.places = [];
    this.build();
    this.update(data);
    this.resized = () => this.draw();
    window.addEventListener("resize", this.resized);
  }

  close() { window.removeEventListener("resize", this.resized); }

  // Show other plans, or more of them; what the reader chose stays.
  update(data) {
    const known = JSON.stringify([data.metrics, data.parameters.map((name, i) => [name, this.valuesOf(data, i)])]);
    this.data = data;
    this.root.classList.toggle("empty", !data.plans.length);
    this.part("empty").hidden = data.plans.length > 0;
    this.part("app-body").hidden = !data.plans.length;
    if (!data.plans.length) return;
    if (known !== this.known) { this.known = known; keepingFocus(this.root, () => this.fillControls()); }
    this.draw();
  }

  part(id) { return this.root.querySelector(`#${id}`); }
  get axes() { const first = initialAxes(this.data); return [this.state.x ?? first[0], this.state.y ?? first[1]]; }
  get colour() { return this.state.colour ?? initialColour(this.data); }
  get chosen() { return this.state.chosen ?? firstChoice(this.data); }
  valuesOf(data, index) { return [...new Set(data.plans.map((plan) => plan.p[index]))].sort(naturally); }

  // -- the parts ------------------------------------------------------------------------------------------------

  build() {
    const heading = this.options.heading ?? "h3";
    const check = (id, words, checked) => element("label", { class: "check" }, element("input", { type: "checkbox", id, checked, onchange: () => this.draw() }), ` ${words}`);
    const choice = (key, words) => element("label", {}, `${words} `, element("select", {
      id: key, "data-key": key, onchange: (event) => { this.state[key] = event.target.value; this.draw(); },
    }));
    const controls = element("form", { id: "controls", "aria-label": "What the plot shows", onsubmit: (event) => event.preventDefault() },
      choice("x", "Across"), choice("y", "Up"), choice("colour", "Colour"), element("span", { id: "filters" }),
      check("front-only", "front only", false), check("broken", "plans that break a limit", true), check("all", "whole range", false),
      element("button", { type: "button", id: "reset", onclick: () => this.reset() }, "Reset"));
    const plot = shape("svg", {
      id: "plot", tabindex: "0", role: "listbox", "aria-multiselectable": "true",
      "aria-label": "Plans. Left and right arrows move between plans, Enter selects one to compare.",
    });
    plot.addEventListener("mousemove", (event) => this.showTip(this.nearest(event)));
    plot.addEventListener("mouseleave", () => this.showTip(null));
    plot.addEventListener("blur", () => this.showTip(null));
    plot.addEventListener("click", (event) => {
      const place = this.nearest(event);
      if (place) { this.state.active = place.plan.id; this.toggle(place.plan.id); }
    });
    plot.addEventListener("keydown", (event) => this.onKey(event));
    this.root.replaceChildren(
      element("p", { id: "empty", class: "hint" }, "No plan was simulated."),
      element("div", { id: "app-body" }, controls,
        element("div", { id: "plot-box" }, plot, element("div", { id: "tip", hidden: true })), element("p", { id: "legend" }),
        element("p", { class: "hint" }, "Point at a plan for its figures; click, or move with the arrow keys and press Enter, to compare it. ",
          element("span", { id: "count", "aria-live": "polite" })),
        element(heading, {}, "Side by side"), element("div", { id: "compare" }),
        element(heading, {}, "Plans shown"), element("div", { id: "list" })));
  }

  fillControls() {
    const { data } = this, metrics = data.metrics.map((metric) => [metric.name, metric.label]);
    const [x, y] = this.axes;
    fillSelect(this.part("x"), metrics, x);
    fillSelect(this.part("y"), metrics, y);
    fillSelect(this.part("colour"), data.parameters.length ? data.parameters.map((name) => [name, name]) : [["", "none"]], this.colour);
    this.part("filters").replaceChildren(...data.parameters.flatMap((name, index) => {
      const values = this.valuesOf(data, index);
      if (values.length > MAX_VALUES) return [];
      const select = element("select", {
        "data-filter": name, "data-key": `filter-${name}`, onchange: () => { this.state.filters[name] = select.value; this.draw(); },
      });
      if (!values.includes(this.state.filters[name])) delete this.state.filters[name];
      fillSelect(select, [["", "any"], ...values.map((value) => [value, value])], this.state.filters[name] ?? "");
      return [element("label", {}, `${name} `, select)];
    }));
  }

  reset() {
    this.part("controls").reset();
    Object.assign(this.state, { x: null, y: null, colour: null, filters: {}, sort: null, chosen: null });
    this.fillControls();
    this.draw();
  }

  // -- drawing --------------------------------------------------------------------------------------------------

  visible(plan) {
    if (this.part("front-only").checked && plan.state !== "front") return false;
    if (!this.part("broken").checked && plan.state === "broken") return false;
    return Object.entries(this.state.filters).every(([name, value]) => value === "" || plan.p[this.data.parameters.indexOf(name)] === value);
  }

  draw() {
    const { data } = this;
    if (!data.plans.length) return;
    this.shown = data.plans.filter((plan) => this.visible(plan));
    const width = Math.min(1200, Math.max(330, this.part("plot-box").clientWidth || 960));
    const colour = this.colour, index = data.parameters.indexOf(colour);
    const groups = index < 0 ? [""] : this.valuesOf(data, index);
    const [x, y] = this.axes;
    this.part("x").value = x;
    this.part("y").value = y;
    this.width = width;
    this.height = Math.round(Math.min(520, Math.max(380, 0.54 * width)));
    const view = { x, y, colour, groups, all: this.part("all").checked };
    this.places = drawFront(this.part("plot"), data, this.shown, view, this.width, this.height);
    this.drawLegend(groups);
    const hidden = data.plans.length - this.shown.length;
    this.part("count").textContent = `${this.shown.length} plans shown` + (hidden ? `, ${hidden} filtered out` : "")
      + (data.left_out ? `; ${data.left_out} more in evaluations.jsonl` : "") + ".";
    this.drawChoice();
  }

  drawLegend(groups) {
    const { data, colour } = this;
    this.part("legend").replaceChildren(
      ...(data.starred ? [legendEntry(STAR, { fill: "var(--star)", stroke: "#000", transform: "scale(.8)" }, "recommended")] : []),
      ...(data.plans.every((plan) => plan.state === "broken") ? [] : groups).map((value, i) => legendEntry(GLYPHS[i % GLYPHS.length], { fill: `var(--c${i % GLYPHS.length})` }, `${colour || "plan"} ${value}`)),
      ...(data.plans.some((plan) => plan.state === "front") ? [legendEntry(GLYPHS[0], { fill: "none", stroke: "var(--ink)" }, "outlined: on the front")] : []),
      legendEntry(CROSS, { stroke: "var(--faint)", fill: "none" }, "breaks a limit"),
      element("span", {}, "small, on the edge: beyond the range"));
  }

  // Everything that depends on which plans are chosen.
  drawChoice() {
    const { data, state } = this, chosen = this.chosen;
    markFront(this.part("plot"), this.places, chosen, state.active);
    const picked = chosen.map((id) => data.plans.find((plan) => plan.id === id)).filter(Boolean);
    keepingFocus(this.root, () => {
      this.part("compare").replaceChildren(compareTable(data, picked, (id) => this.toggle(id)));
      this.part("list").replaceChildren(...planList(data, this.shown, {
        sort: state.sort, more: state.more, chosen, link: this.options.link,
        onSort: (metric) => this.sortBy(metric), onToggle: (id) => this.toggle(id),
        onMore: () => { state.more = !state.more; this.drawChoice(); },
      }));
    });
    this.options.onChoose?.(picked);
  }

  sortBy(metric) {
    const { sort } = this.state;
    const sign = sort && sort[0] === metric.name ? -sort[1] : metric.sense === "max" ? -1 : 1;
    this.state.sort = [metric.name, sign];
    this.drawChoice();
  }

  toggle(id) {
    const chosen = this.chosen;
    this.state.chosen = chosen.includes(id) ? chosen.filter((other) => other !== id) : [...chosen, id].slice(-MAX_CHOSEN);
    this.drawChoice();
  }

  // -- pointing -------------------------------------------------------------------------------------------------

  nearest(event) {
    const box = this.part("plot").getBoundingClientRect();
    const [x, y] = [(event.clientX - box.left) * this.width / box.width, (event.clientY - box.top) * this.height / box.height];
    let found = null, least = 20;
    for (const place of this.places) {
      const distance = Math.hypot(place.x - x, place.y - y) - (place.plan.id === this.data.starred ? 6 : place.plan.state === "front" ? 3 : 0);
      if (distance < least) [found, least] = [place, distance];
    }
    return found;
  }

  showTip(place) {
    const tip = this.part("tip"), { data, width, height } = this;
    tip.hidden = !place;
    if (!place) return;
    const { plan } = place;
    const lines = [element("b", {}, starredTitle(data, plan)), settings(data, plan)];
    for (const name of new Set([...this.axes, ...data.objectives, "cost_per_hour"])) {
      const index = metricIndex(data, name);
      if (index < 0) continue;
      const ends = plan.intervals && plan.intervals[index], metric = data.metrics[index];
      lines.push(element("br"), `${metric.label}: ${figure(metric, plan.m[index])}` + (ends ? ` (${ends.map(number).join(" to ")})` : ""));
    }
    if (plan.confidence) lines.push(element("br"), `confidence: ${plan.confidence}`);
    if (plan.validated) lines.push(element("br"), `validated: ${plan.validated}`);
    lines.push(element("br"), element("small", {}, plan.why_not || plan.limit || "feasible, but another plan is better in everything"));
    const same = this.places.filter((p) => p !== place && Math.hypot(p.x - place.x, p.y - place.y) < 1).length;
    if (same) lines.push(element("br"), element("small", {}, `${same} more at this point`));
    tip.replaceChildren(...lines);
    const unit = this.part("plot").getBoundingClientRect().width / width;
    const left = place.x > width / 2, down = place.y > height / 2;
    tip.style.left = left ? "" : `${(place.x + 18) * unit}px`;
    tip.style.right = left ? `${(width - place.x + 18) * unit}px` : "";
    tip.style.top = down ? "" : `${(place.y + 8) * unit}px`;
    tip.style.bottom = down ? `${(height - place.y + 8) * unit}px` : "";
  }

  onKey(event) {
    const { state } = this;
    if (event.key in MOVES) this.moveTo(MOVES[event.key]);
    else if ((event.key === "Enter" || event.key === " ") && state.active) this.toggle(state.active);
    else if (event.key === "Escape") { state.active = null; this.showTip(null); this.drawChoice(); } else return;
    event.preventDefault();
  }

  moveTo(step) {
    const { places, state, data } = this;
    if (!places.length) return;
    const now = places.findIndex((place) => place.plan.id === state.active);
    const start = Math.max(0, places.findIndex((place) => place.plan.id === data.starred));
    const next = step === "first" ? 0 : step === "last" ? places.length - 1 : now < 0 ? start : (now + step + places.length) % places.length;
    state.active = places[next].plan.id;
    markFront(this.part("plot"), places, this.chosen, state.active);
    this.showTip(places[next]);
  }
}
