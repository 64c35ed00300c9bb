// Replay of routing decisions: one run, or two policies on the same requests, side by side on one clock.

import { element, fillSelect, number, percent } from "./shared/dom.js";
import { get } from "./api.js";
import { sourceWords } from "./replay_colours.js";
import { Clock, SPEEDS, clockText } from "./replay_clock.js";
import { Lanes, described } from "./replay_lanes.js";
import { ReplayRun } from "./replay_run.js";
import { button, problemBox, waiting } from "./ui.js";

const WORDS_MS = 100, ZOOM = 1.5, STEP = 0.02, LEAP = 0.2, TALLER = 1.4, MAX_TALL = 24;
const HELP = "Space plays and pauses, left and right arrows move the time (with Shift further), up and down arrows change the speed, "
  + "plus and minus zoom, comma and full stop go from request to request, Page Up and Page Down move the lanes, Home and End go to the ends.";

export function showReplay(main, { job, plan }, query) {
  const view = new ReplayView(job, plan, query.get("with") ?? "");
  main.replaceChildren(...view.parts);
  view.load();
  return () => view.close();
}

const policyName = (routing) => typeof routing === "string" ? routing
  : `${routing.name}${Object.entries(routing.parameters ?? routing).filter(([key]) => key !== "name" && key !== "parameters").map(([key, value]) => ` ${key}=${value}`).join(",")}`;

class ReplayView {
  constructor(job, plan, other) {
    Object.assign(this, { job, plan, other, panes: [], runs: [], wanted: false, ended: new AbortController(), last: 0, words: 0 });
    this.stage = { from: 0, to: 1, now: 0, laneScale: 1, scrollY: 0, rows: 1, peakWaiting: 1, marked: false };
    this.clock = new Clock(this.stage, 1);
    this.box = element("div", { class: "panes" });
    this.answer = element("div", {});
    this.live = element("p", { class: "visually-hidden", "aria-live": "polite" });
    this.legend = element("p", { class: "legend" });
    this.parts = [
      element("p", { class: "crumbs" }, element("a", { href: "#/runs" }, "Runs"), " › ", element("a", { href: `#/runs/${job}` }, job), " › ",
        element("a", { href: `#/runs/${job}/plans/${plan}` }, `plan ${plan}`)),
      element("h1", {}, `Replay of plan ${plan}`), this.bar(), this.answer, this.box, this.legend, this.live,
    ];
    this.onResize = () => { this.panes.forEach((pane) => pane.lanes.resize()); if (this.panes.length) this.writeLegend(); this.redraw(); };
    this.theme = matchMedia("(prefers-color-scheme: dark)");
    window.addEventListener("resize", this.onResize);
    this.theme.addEventListener("change", this.onResize);
  }

  close() {
    this.ended.abort();
    this.closed = true;
    window.removeEventListener("resize", this.onResize);
    this.theme.removeEventListener("change", this.onResize);
  }

  // -- controls -------------------------------------------------------------------------------------------------

  bar() {
    this.playButton = button("▶ Play", () => this.toggle(), { class: "primary", "aria-keyshortcuts": "Space" });
    this.speed = element("select", { onchange: () => { this.clock.speed = Number(this.speed.value); } });
    fillSelect(this.speed, SPEEDS.map((speed) => [speed, `${speed}×`]), this.clock.speed);
    this.scrub = element("input", { type: "range", min: 0, max: 1000, step: "any", value: 0, "aria-label": "Time", oninput: () => this.seek(Number(this.scrub.value)) });
    this.time = element("output", { class: "time" }, "0.0 s");
    this.against = element("select", { id: "against", onchange: () => this.compareWith(this.against.value) });
    fillSelect(this.against, [["", "nothing"]], "");
    const tool = (sign, words, action) => button(sign, action, { "aria-label": words, title: words });
    return element("div", { class: "replay-bar", role: "toolbar", "aria-label": "Replay" }, this.playButton,
      element("label", {}, "Speed ", this.speed), element("span", { class: "scrub" }, this.scrub, this.time),
      element("span", { class: "tools" }, tool("+", "Zoom in", () => this.zoom(ZOOM)), tool("−", "Zoom out", () => this.zoom(1 / ZOOM)),
        button("Whole run", () => { this.clock.whole(); this.redraw(); }),
        tool("Lanes +", "Taller lanes", () => this.tall(TALLER)), tool("Lanes −", "Lower lanes", () => this.tall(1 / TALLER))),
      element("label", {}, "Compare with ", this.against));
  }

  onKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const step = this.clock.span * (event.shiftKey ? LEAP : STEP), page = 0.8 * (this.panes[0]?.lanes.body ?? 0);
    const actions = {
      " ": () => this.toggle(), ArrowRight: () => this.seek(this.stage.now + step), ArrowLeft: () => this.seek(this.stage.now - step),
      ArrowUp: () => this.faster(1), ArrowDown: () => this.faster(-1), "+": () => this.zoom(ZOOM), "=": () => this.zoom(ZOOM),
      "-": () => this.zoom(1 / ZOOM), Home: () => this.seek(0), End: () => this.seek(this.clock.duration),
      ".": () => this.next(event.currentTarget, 1), ",": () => this.next(event.currentTarget, -1),
      PageDown: () => this.scroll(page), PageUp: () => this.scroll(-page), Escape: () => this.point(null, -1),
    };
    const action = actions[event.key];
    if (!action) return;
    event.preventDefault();
    action();
  }

  toggle() {
    if (this.clock.playing) this.clock.playing = false; else this.clock.play();
    this.redraw();
  }
  faster(step) {
    const at = SPEEDS.indexOf(this.clock.speed) + step;
    this.clock.speed = SPEEDS[Math.min(SPEEDS.length - 1, Math.max(0, at))];
    this.speed.value = String(this.clock.speed);
    this.live.textContent = `${this.clock.speed} times as fast`;
  }
  seek(ms) { this.clock.seek(ms); this.redraw(); }
  zoom(factor, around) { this.clock.zoom(factor, around); this.redraw(); }
  scroll(px) {
    const most = Math.max(0, ...this.panes.map((pane) => pane.lanes.contentHeight - pane.lanes.body));
    this.stage.scrollY = Math.round(Math.min(most, Math.max(0, this.stage.scrollY + px)));
    this.redraw();
  }
  tall(factor) {
    const { stage } = this, lanes = this.panes[0]?.lanes;
    if (!lanes) return;
    // The foot of the lane in the middle, where its bars are, stays in view.
    const feet = Math.floor((stage.scrollY + lanes.body / 2) / lanes.laneHeight) + 1;
    const foot = Math.min(lanes.body, feet * lanes.laneHeight - stage.scrollY);
    stage.laneScale = Math.min(MAX_TALL, Math.max(1, stage.laneScale * factor));
    stage.scrollY = feet * lanes.laneHeight - foot;
    this.scroll(0);
  }

  // -- data -----------------------------------------------------------------------------------------------------

  async load() {
    this.answer.replaceChildren(waiting("Simulating the plan again, request by request ..."));
    try {
      const [first, catalog] = await Promise.all([this.fetchRun(""), get("/catalog", this.ended.signal)]);
      const own = policyName(first.data.routing).split(" ")[0];
      fillSelect(this.against, [["", "nothing"], ...catalog.policies.routing.filter(({ name }) => name !== own).map(({ name }) => [name, name])], "");
      this.answer.replaceChildren();
      this.show([first]);
      if (this.other) { this.against.value = this.other; await this.compareWith(this.other); }
    } catch (error) { this.failed(error, () => this.load()); }
  }

  async fetchRun(routing) {
    const path = `/jobs/${this.job}/plans/${this.plan}/replay${routing ? `?routing=${encodeURIComponent(routing)}` : ""}`;
    return new ReplayRun(await get(path, this.ended.signal));
  }

  async compareWith(routing) {
    history.replaceState(null, "", `#/runs/${this.job}/plans/${this.plan}/replay${routing ? `?with=${encodeURIComponent(routing)}` : ""}`);
    if (!routing) { this.answer.replaceChildren(); this.show(this.runs.slice(0, 1)); return; }
    this.answer.replaceChildren(waiting(`Simulating the same requests with ${routing} ...`));
    try {
      const second = await this.fetchRun(routing);
      if (this.against.value !== routing) return;
      this.answer.replaceChildren();
      this.show([this.runs[0], second]);
    } catch (error) { this.failed(error, () => this.compareWith(routing)); }
  }

  failed(error, retry) {
    if (error.name === "AbortError") return;
    if (error.status === undefined) console.error(error);
    this.answer.replaceChildren(problemBox(error, retry));
  }

  show(runs) {
    const { now } = this.stage, fresh = !this.runs.length;
    this.runs = runs;
    this.clock.duration = Math.max(...runs.map((run) => run.duration));
    Object.assign(this.stage, {
      rows: Math.max(...runs.map((run) => run.rows)), peakWaiting: Math.max(...runs.map((run) => run.peakWaiting)),
      marked: runs.some((run) => run.unserved.times.length > 0),
    });
    this.clock.whole();
    this.scrub.max = String(this.clock.duration);
    this.seek(fresh ? 0 : now);
    this.panes = runs.map((run) => this.pane(run));
    this.box.classList.toggle("pair", runs.length > 1);
    this.box.replaceChildren(...this.panes.map((pane) => pane.root));
    for (const pane of this.panes) pane.lanes = new Lanes(pane.canvas, pane.run, this.stage);
    this.writeLegend();
    this.redraw();
  }

  // -- a run on the screen --------------------------------------------------------------------------------------

  pane(run) {
    const policy = policyName(run.data.routing);
    const canvas = element("canvas", {
      tabindex: "0", role: "application", "aria-roledescription": "replay", "aria-describedby": "replay-help",
      "aria-label": `${run.lanes.length} replicas under ${policy}, ${number(run.count)} requests over ${clockText(run.duration)}`,
    });
    const counters = Object.fromEntries(["mean TTFT so far", "hit rate so far", "waiting", "running", "completed", "refused"]
      .map((name) => [name, element("dd", {}, "-")]));
    const tip = element("div", { class: "tip", hidden: true });
    const pane = { run, canvas, counters, tip };
    pane.root = element("figure", { class: "pane" },
      element("figcaption", {}, element("b", {}, policy), ` on ${run.data.label} ${run.data.gpu}`),
      element("dl", { class: "counters" }, ...Object.entries(counters).map(([name, cell]) => element("div", {}, element("dt", {}, name), cell))),
      element("div", { class: "canvas-box" }, canvas, tip));
    canvas.addEventListener("keydown", (event) => this.onKey(event));
    canvas.addEventListener("wheel", (event) => this.onWheel(event, pane), { passive: false });
    canvas.addEventListener("dblclick", (event) => this.zoom(2, pane.lanes.time(event.offsetX)));
    canvas.addEventListener("pointerdown", (event) => this.onDrag(event, pane));
    canvas.addEventListener("pointermove", (event) => { if (!event.buttons) this.point(pane, pane.lanes.requestAt(event.offsetX, event.offsetY), event); });
    canvas.addEventListener("pointerleave", () => this.point(null, -1));
    return pane;
  }

  onWheel(event, pane) {
    const sideways = event.shiftKey ? event.deltaY : event.deltaX;
    if (event.ctrlKey || event.metaKey) this.zoom(Math.exp(-event.deltaY / 300), pane.lanes.time(event.offsetX));
    else if (sideways) { this.clock.pan(sideways / pane.lanes.pxPerMs); this.redraw(); }
    else if (pane.lanes.contentHeight > pane.lanes.body + 1 && document.activeElement === pane.canvas) this.scroll(event.deltaY);
    else return;
    event.preventDefault();
  }

  // Dragging moves the view; a click puts the playhead where it is.
  onDrag(event, pane) {
    if (event.button) return;
    const { canvas } = pane, begin = [event.clientX, event.clientY];
    let [x, y] = begin, moved = false;
    canvas.setPointerCapture(event.pointerId);
    const move = (next) => {
      moved ||= Math.hypot(next.clientX - begin[0], next.clientY - begin[1]) > 4;
      if (!moved) return;
      this.clock.pan((x - next.clientX) / pane.lanes.pxPerMs);
      this.scroll(y - next.clientY);
      [x, y] = [next.clientX, next.clientY];
    };
    const up = (last) => {
      canvas.removeEventListener("pointermove", move);
      if (!moved && last.type === "pointerup" && last.offsetX > pane.lanes.gutter) this.seek(pane.lanes.time(last.offsetX));
    };
    canvas.addEventListener("pointermove", move);
    canvas.addEventListener("pointerup", up, { once: true });
    canvas.addEventListener("pointercancel", up, { once: true });
  }

  // Mark request `i` in every run, and say of it what is known next to the pointer, or next to its bar.
  point(pane, i, event = null) {
    if (i === this.pointed && pane === this.pointedPane) return;
    [this.pointed, this.pointedPane] = [i, pane];
    for (const each of this.panes) {
      each.lanes.selected = i < each.run.count ? i : -1;
      each.tip.hidden = i < 0 || each !== pane;
    }
    if (pane && i >= 0) this.writeTip(pane, i, event);
    this.redraw();
  }

  writeTip({ run, tip, lanes }, i, event) {
    const it = described(run, i), ms = (value) => value === null ? "-" : `${number(value)} ms`;
    const place = event ? { x: event.offsetX, y: event.offsetY } : lanes.place(i) ?? { x: lanes.width / 2, y: lanes.height / 2 };
    const rows = [
      ["replica", it.replica], ["outcome", it.outcome], ["prefix from", it.source + (it.from >= 0 ? ` (request ${it.from})` : "")],
      ["tokens", `${number(it.prompt)} in (${number(it.cached)} cached${it.loaded ? `, ${number(it.loaded)} loaded` : ""}), ${number(it.output)} out`], ["arrival", clockText(it.arrival, 2)],
      ["queue", ms(it.queue)], ["prefill", it.prefill ?? ms(it.computing)], ["TTFT", ms(it.ttft)], ["E2E", ms(it.e2e)],
    ];
    if (it.preemptions) rows.push(["preempted", `${it.preemptions} times`]);
    if (run.data.classes.length > 1) rows.push(["class", it.slo_class]);
    tip.replaceChildren(element("b", {}, `request ${i}`), element("dl", {}, ...rows.flatMap(([name, words]) => [element("dt", {}, name), element("dd", {}, words)])));
    const left = place.x > lanes.width / 2, down = place.y > lanes.height / 2;
    tip.style.left = left ? "" : `${Math.max(0, place.x) + 14}px`;
    tip.style.right = left ? `${lanes.width - Math.min(lanes.width, place.x) + 14}px` : "";
    tip.style.top = down ? "" : `${Math.max(0, place.y) + 8}px`;
    tip.style.bottom = down ? `${lanes.height - Math.min(lanes.height, place.y) + 8}px` : "";
    if (!event) this.live.textContent = `Request ${i}: ${rows.map(([name, words]) => `${name} ${words}`).join(", ")}`;
  }

  // From request to request, in order of arrival, with the playhead where it is done.
  next(canvas, step) {
    const pane = this.panes.find((each) => each.canvas === canvas), { arrival } = pane.run;
    pane.order ??= Array.from(arrival.keys()).sort((a, b) => arrival[a] - arrival[b]);
    const at = this.pointed >= 0 && this.pointedPane === pane ? pane.order.indexOf(this.pointed) + step
      : pane.order.findIndex((i) => arrival[i] >= this.stage.from);
    const i = pane.order[Math.min(pane.order.length - 1, Math.max(0, at))];
    this.clock.playing = false;
    this.clock.reveal(arrival[i], Math.min(pane.run.finish[i], this.clock.duration));
    this.point(pane, i);
  }

  // -- frames ---------------------------------------------------------------------------------------------------

  redraw() {
    if (this.wanted || this.closed) return;
    this.wanted = true;
    requestAnimationFrame((now) => this.frame(now));
  }

  frame(now) {
    this.wanted = false;
    if (this.closed || !this.panes.length) return;
    this.clock.tick(this.last ? Math.min(100, now - this.last) : 0);
    const complete = this.panes.map((pane) => pane.lanes.draw()).every(Boolean);
    if (!this.clock.playing || now - this.words > WORDS_MS) { this.writeWords(); this.words = now; }
    this.last = this.clock.playing ? now : 0;
    if (this.clock.playing || !complete) this.redraw();
  }

  writeWords() {
    const { stage, clock } = this;
    this.playButton.textContent = clock.playing ? "❚❚ Pause" : "▶ Play";
    this.scrub.value = String(stage.now);
    this.scrub.setAttribute("aria-valuetext", clockText(stage.now));
    this.time.textContent = `${clockText(stage.now)} of ${clockText(clock.duration, 0)}`;
    for (const { run, counters } of this.panes) {
      const now = run.at(stage.now);
      counters["mean TTFT so far"].textContent = now.meanTtft === null ? "-" : `${number(now.meanTtft)} ms`;
      counters["hit rate so far"].textContent = percent(now.hitRate);
      for (const name of ["waiting", "running", "completed", "refused"]) counters[name].textContent = number(now[name]);
    }
  }

  writeLegend() {
    const swatch = (kind, words, colour = "") => {
      const icon = element("i", { class: `swatch ${kind}`, "aria-hidden": "true" });
      icon.style.background = colour;
      return element("span", {}, icon, ` ${words}`);
    };
    const { phases } = this.panes[0].lanes.colours, shown = phases[Math.max(0, this.runs[0].sources.indexOf("cache"))];
    const sources = this.runs[0].sources.flatMap((name, s) => name !== "remote" || this.runs.some((run) => run.poolSize)
      ? [swatch("", sourceWords(name), phases[s].decode)] : []);
    const marks = this.stage.marked ? [element("span", {}, "× shed"), element("span", {}, "▽ expired"), element("span", {}, "□ rejected")] : [];
    this.legend.replaceChildren(element("b", {}, "Where the prompt's beginning came from:"), ...sources,
      element("b", {}, "A bar:"), swatch("hatch", "waits"), swatch("", "prefill", shown.prefill), swatch("", "decode", shown.decode),
      swatch("strip", `waiting at the replica (full height: ${number(this.stage.peakWaiting)})`), ...marks,
      element("small", { id: "replay-help" }, `Click to move the playhead, drag to pan, Ctrl and wheel to zoom. ${HELP}`));
  }
}
