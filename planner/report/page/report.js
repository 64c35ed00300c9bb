"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const byId = (id) => document.getElementById(id);
  const SVG = "http://www.w3.org/2000/svg";
  let W = 960, H = 520;  // units of the plot: pixels, within limits
  const LEFT = 78, RIGHT = 24, TOP = 26, BOTTOM = 52;
  const REACH = 4, LOG_FROM = 8, ROWS = 12, KINDS = 8, NOISE = 0.0005;
  const GLYPHS = [
    "M-5,0a5,5 0 1,0 10,0a5,5 0 1,0 -10,0z", "M-4.5,-4.5h9v9h-9z", "M0,-5.6L5.4,4.4H-5.4z", "M0,-6.2L6.2,0L0,6.2L-6.2,0z",
    "M0,5.6L5.4,-4.4H-5.4z", "M-2,-5.5h4v3.5h3.5v4h-3.5v3.5h-4v-3.5h-3.5v-4h3.5z", "M-5.5,0L-2.75,-4.8H2.75L5.5,0L2.75,4.8H-2.75z",
    "M-5,-5L0,-1.8L5,-5L1.8,0L5,5L0,1.8L-5,5L-1.8,0z",
  ];
  const STAR = "M0,-9.5L2.4,-3.2L9,-2.9L3.8,1.2L5.6,7.7L0,4L-5.6,7.7L-3.8,1.2L-9,-2.9L-2.4,-3.2z";
  const CROSS = "M-3.5,-3.5L3.5,3.5M-3.5,3.5L3.5,-3.5";

  const plans = data.plans;
  const metricAt = new Map(data.metrics.map((metric, index) => [metric.name, index]));
  const initial = initialAxes();
  const state = { x: initial[0], y: initial[1], colour: initialColour(), filters: {}, active: null, sort: null, more: false };
  let chosen = firstChoice();
  let shown = [], places = [];

  // -- small helpers --------------------------------------------------------------------------------------------

  function element(tag, attributes = {}, ...children) {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    node.append(...children);
    return node;
  }
  function shape(tag, attributes, parent, text) {
    const node = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    if (text !== undefined) node.textContent = text;
    parent.append(node);
    return node;
  }
  function number(value) {
    if (value === null || value === undefined) return "-";
    const size = Math.abs(value);
    if (Number.isInteger(value) || size >= 100) return Math.round(value).toLocaleString("en-US");
    if (size < 0.001) return value.toExponential(1);
    return value.toFixed(Math.max(0, 2 - Math.floor(Math.log10(size))));
  }
  function figure(index, value) {
    const metric = data.metrics[index];
    if (value === null || value === undefined) return "-";
    if (metric.name.startsWith("cost_")) return "$" + value.toFixed(2);
    if (metric.share) return `${number(Number((100 * value).toPrecision(3)))}%`;
    return number(value);
  }
  const title = (plan) => `${plan.label} ${plan.id}`;
  const stateWords = (plan) => ({ front: "on the front", feasible: "feasible", broken: "breaks a limit" })[plan.state];
  const settings = (plan) => data.parameters
    .map((name, i) => [name, plan.p[i]])
    .filter(([name]) => name !== "tensor_parallel_size" && name !== "replicas")
    .map(([name, value]) => `${name} ${value}`).join(", ");

  function initialAxes() {
    const spread = (name) => {
      const values = plans.filter((plan) => plan.state === "front").map((plan) => plan.m[metricAt.get(name)]).filter((v) => v !== null);
      const top = Math.max(...values.map(Math.abs), 0);
      return top ? (Math.max(...values) - Math.min(...values)) / top : 0;
    };
    let names = data.objectives.filter((name) => metricAt.has(name)).sort((a, b) => spread(b) - spread(a));
    for (const name of ["cost_per_hour", "ttft_mean_ms", "output_tokens_per_s"]) {
      if (names.length < 2 && metricAt.has(name) && !names.includes(name)) names.push(name);
    }
    names = names.slice(0, 2);
    if (names[1] === "gpus" || names[1] === "cost_per_hour") names.reverse();
    return [metricAt.get(names[0]) ?? 0, metricAt.get(names[1] ?? names[0]) ?? 0];
  }
  function initialColour() {
    const usual = ["gpu", "replicas", "tensor_parallel_size", "max_num_seqs"];
    return usual.map((name) => data.parameters.indexOf(name)).find((index) => index >= 0) ?? (data.parameters.length ? 0 : -1);
  }
  function firstChoice() {
    const front = plans.filter((plan) => plan.state === "front");
    const pool = (front.length ? front : plans).slice();
    pool.sort((a, b) => (b.id === data.starred) - (a.id === data.starred));
    const seen = new Set();
    return pool.filter((plan) => !seen.has(plan.label) && seen.add(plan.label)).slice(0, 3).map((plan) => plan.id);
  }

  // -- what is shown --------------------------------------------------------------------------------------------

  function visible(plan) {
    if (byId("front-only").checked && plan.state !== "front") return false;
    if (!byId("broken").checked && plan.state === "broken") return false;
    return Object.entries(state.filters).every(([index, value]) => value === "" || plan.p[index] === value);
  }
  const kinds = () => state.colour < 0 ? [""] : [...new Set(plans.map((plan) => plan.p[state.colour]))].sort(naturally);
  function naturally(a, b) {
    const [x, y] = [Number(a), Number(b)];
    return Number.isNaN(x) || Number.isNaN(y) ? String(a).localeCompare(String(b), "en") : x - y;
  }

  function axis(index, from, to) {
    const metric = data.metrics[index];
    const values = (some) => some.map((plan) => plan.m[index]).filter((value) => value !== null);
    const everything = values(shown);
    const focus = values(shown.filter((plan) => plan.state !== "broken"));
    const limits = data.constraints.filter(([name, , limit]) => name === metric.name && limit > 0).map(([, , limit]) => limit);
    let inner = [...focus, ...limits];
    if (!focus.length || byId("all").checked) inner = [...everything, ...limits];
    if (!inner.length) inner = [0, 1];
    let low = Math.min(...inner), high = Math.max(...inner);
    for (const value of everything) if (low / REACH <= value && value <= high * REACH) { low = Math.min(low, value); high = Math.max(high, value); }
    const log = low > 0 && high / low > LOG_FROM && metric.name !== "gpus";
    if (log) { low /= 1.3; high *= 1.3; } else {
      const span = Math.max(high - low, 0.2 * Math.abs(high), 1e-9), middle = (high + low) / 2;
      [low, high] = [low >= 0 ? Math.max(0, middle - 0.58 * span) : middle - 0.58 * span, middle + 0.58 * span];
      if (metric.name === "gpus") low = 0;
    }
    const f = log ? Math.log10 : (v) => v;
    const at = (value) => from + (f(value) - f(low)) / (f(high) - f(low)) * (to - from);
    return { low, high, log, at: (value) => at(Math.min(high, Math.max(low, value))), inside: (v) => v >= low && v <= high, ticks: ticks(low, high, log), metric };
  }
  function ticks(low, high, log) {
    const found = [];
    if (log) {
      const steps = high / low < 1e3 ? [1, 2, 5] : [1];
      for (let e = Math.floor(Math.log10(low)); e <= Math.ceil(Math.log10(high)); e++)
        for (const s of steps) if (s * 10 ** e >= low && s * 10 ** e <= high) found.push(Number((s * 10 ** e).toPrecision(6)));
      return found;
    }
    const raw = (high - low) / 6, power = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 5, 10].map((s) => s * power).find((s) => s >= raw);
    for (let i = Math.ceil(low / step); i * step <= high; i++) found.push(Number((i * step).toPrecision(10)));
    return found;
  }

  // -- plot -----------------------------------------------------------------------------------------------------

  function draw() {
    shown = plans.filter(visible);
    const svg = byId("plot");
    svg.replaceChildren();
    W = Math.min(960, Math.max(460, byId("plot-box").clientWidth || 960));
    H = Math.round(Math.max(380, 0.54 * W));
    svg.setAttribute("viewBox", `0 0 ${W} ${H}`);
    const x = axis(state.x, LEFT, W - RIGHT), y = axis(state.y, H - BOTTOM, TOP);
    drawAllowed(svg, x, y);
    drawAxes(svg, x, y);
    drawLine(svg, x, y);
    const groups = kinds();
    places = [];
    const order = { broken: 0, feasible: 1, front: 2 };
    const sorted = shown.filter((plan) => plan.m[state.x] !== null && plan.m[state.y] !== null)
      .sort((a, b) => order[a.state] - order[b.state] || (a.id === data.starred) - (b.id === data.starred));
    for (const plan of sorted) drawPoint(svg, plan, x, y, groups);
    drawLabels(svg);
    places.sort((a, b) => a.x - b.x || a.y - b.y);
    mark();
    drawLegend(groups);
    const hidden = plans.length - shown.length;
    byId("count").textContent = `${shown.length} plans shown` + (hidden ? `, ${hidden} filtered out` : "")
      + (data.left_out ? `; ${data.left_out} more in evaluations.jsonl` : "") + ".";
    drawList();
  }
  function drawAllowed(svg, x, y) {
    const box = { x: [x.low, x.high], y: [y.low, y.high] };
    let limited = false;
    for (const [name, operator, limit] of data.constraints) {
      for (const [key, scale] of [["x", x], ["y", y]]) {
        if (scale.metric.name !== name) continue;
        limited = true;
        if (operator.includes("<")) box[key][1] = Math.min(box[key][1], limit);
        else box[key][0] = Math.max(box[key][0], limit);
      }
    }
    if (limited && box.x[0] < box.x[1] && box.y[0] < box.y[1]) {
      shape("rect", { class: "allowed", x: x.at(box.x[0]), y: y.at(box.y[1]), width: x.at(box.x[1]) - x.at(box.x[0]), height: y.at(box.y[0]) - y.at(box.y[1]) }, svg);
    }
  }
  function drawAxes(svg, x, y) {
    const base = H - BOTTOM;
    shape("path", { class: "axis", d: `M${LEFT},${TOP}V${base}H${W - RIGHT}`, fill: "none" }, svg);
    for (const tick of x.ticks) {
      shape("path", { class: "axis", d: `M${x.at(tick)},${base}v5` }, svg);
      shape("text", { class: "tick", x: x.at(tick), y: base + 18, "text-anchor": "middle" }, svg, number(tick));
    }
    for (const tick of y.ticks) {
      shape("path", { class: "axis", d: `M${LEFT},${y.at(tick)}h-5` }, svg);
      shape("text", { class: "tick", x: LEFT - 9, y: y.at(tick) + 4, "text-anchor": "end" }, svg, number(tick));
    }
    const better = (metric, low, high) => metric.sense === "max" ? `${metric.label} ${high} better` : metric.sense ? `${low} better: ${metric.label}` : metric.label;
    shape("text", { x: (LEFT + W - RIGHT) / 2, y: H - 12, "text-anchor": "middle" }, svg, better(x.metric, "←", "→"));
    shape("text", { transform: `translate(18,${(TOP + base) / 2}) rotate(-90)`, "text-anchor": "middle" }, svg, better(y.metric, "←", "→"));
    for (const [name, operator, limit] of data.constraints) {
      const text = `limit ${operator.replace("<=", "≤").replace(">=", "≥")} ${number(limit)}`;
      if (x.metric.name === name && x.inside(limit)) {
        shape("path", { class: "limit", d: `M${x.at(limit)},${TOP}V${base}` }, svg);
        shape("text", { class: "limit-text", x: x.at(limit) - 5, y: TOP + 10, "text-anchor": "end" }, svg, text);
      }
      if (y.metric.name === name && y.inside(limit)) {
        shape("path", { class: "limit", d: `M${LEFT},${y.at(limit)}H${W - RIGHT}` }, svg);
        shape("text", { class: "limit-text", x: W - RIGHT - 4, y: y.at(limit) - 5, "text-anchor": "end" }, svg, text);
      }
    }
  }
  function drawLine(svg, x, y) {
    const sign = [x, y].map((scale) => scale.metric.sense === "max" ? -1 : 1);
    const front = shown.filter((plan) => plan.state === "front" && plan.m[state.x] !== null && plan.m[state.y] !== null);
    front.sort((a, b) => sign[0] * (a.m[state.x] - b.m[state.x]) || sign[1] * (a.m[state.y] - b.m[state.y]));
    let best = Infinity;
    const kept = front.filter((plan) => sign[1] * plan.m[state.y] < best && ((best = sign[1] * plan.m[state.y]), true));
    if (kept.length > 1) shape("path", { class: "line", d: "M" + kept.map((plan) => `${x.at(plan.m[state.x])},${y.at(plan.m[state.y])}`).join("L") }, svg);
  }
  function drawPoint(svg, plan, x, y, groups) {
    const px = x.at(plan.m[state.x]), py = y.at(plan.m[state.y]);
    const kind = groups.indexOf(state.colour < 0 ? "" : plan.p[state.colour]) % KINDS;
    const beyond = !x.inside(plan.m[state.x]) || !y.inside(plan.m[state.y]);
    for (const [index, scale, vertical] of [[state.x, x, false], [state.y, y, true]]) {
      const ends = plan.intervals && plan.intervals[index];
      if (ends && !beyond) {
        const [a, b] = ends.map(scale.at);
        shape("path", { class: "bar", d: vertical ? `M${px},${a}V${b}` : `M${a},${py}H${b}` }, svg);
      }
    }
    const starred = plan.id === data.starred;
    const d = starred ? STAR : plan.state === "broken" ? CROSS : GLYPHS[kind];
    const node = shape("path", {
      d, id: `p-${plans.indexOf(plan)}`, class: `point ${starred ? "starred" : plan.state}`, role: "option",
      transform: `translate(${px},${py})${beyond ? " scale(.6)" : plan.state === "feasible" ? " scale(.75)" : ""}`, "aria-label": spoken(plan),
    }, svg);
    if (!starred && plan.state !== "broken") node.style.fill = `var(--c${kind})`;
    places.push({ plan, node, x: px, y: py });
  }
  function spoken(plan) {
    const figures = [state.x, state.y].map((index) => `${data.metrics[index].label} ${figure(index, plan.m[index])}`).join(", ");
    return `${plan.id === data.starred ? "recommended, " : ""}${title(plan)}, ${stateWords(plan)}, ${figures}`;
  }
  function drawLabels(svg) {
    const boxes = [], written = [];
    const several = data.parameters.indexOf("gpu");
    for (const place of places.filter((p) => p.plan.state === "front").reverse()) {
      const text = place.plan.label + (several >= 0 ? ` ${place.plan.p[several].split("-")[0]}` : "");
      if (written.some((other) => other.text === text && Math.hypot(other.x - place.x, other.y - place.y) < 70)) continue;
      const width = 7 * text.length;
      for (const [dx, dy] of [[16, -10], [16, 4], [16, 20], [-width / 2, -18], [-width / 2, 28], [-16 - width, -10], [-16 - width, 20]]) {
        const box = [place.x + dx, place.y + dy - 11, place.x + dx + width, place.y + dy + 2];
        const free = box[0] > LEFT && box[2] < W - 4 && box[1] > 4
          && !boxes.some((b) => b[0] < box[2] && box[0] < b[2] && b[1] < box[3] && box[1] < b[3])
          && !places.some((p) => p.plan.state !== "broken" && p !== place && p.x > box[0] - 6 && p.x < box[2] + 6 && p.y > box[1] - 6 && p.y < box[3] + 6);
        if (!free) continue;
        boxes.push(box);
        written.push({ text, x: place.x, y: place.y });
        shape("text", { x: box[0], y: place.y + dy, "pointer-events": "none" }, svg, text);
        break;
      }
    }
  }
  function drawLegend(groups) {
    const entry = (d, style, words) => {
      const icon = document.createElementNS(SVG, "svg");
      icon.setAttribute("viewBox", "-8 -8 16 16");
      icon.setAttribute("aria-hidden", "true");
      Object.assign(shape("path", { d }, icon).style, style);
      return element("span", {}, icon, ` ${words}`);
    };
    const legend = byId("legend");
    legend.replaceChildren();
    if (data.starred) legend.append(entry(STAR, { fill: "var(--star)", stroke: "#000", transform: "scale(.8)" }, "recommended"));
    const name = state.colour < 0 ? "plan" : data.parameters[state.colour];
    groups.forEach((value, i) => legend.append(entry(GLYPHS[i % KINDS], { fill: `var(--c${i % KINDS})` }, `${name} ${value}`)));
    legend.append(entry(GLYPHS[0], { fill: "none", stroke: "var(--ink)" }, "outlined: on the front"));
    legend.append(entry(CROSS, { stroke: "var(--faint)", fill: "none" }, "breaks a limit"));
    legend.append(element("span", {}, "small, on the edge: beyond the range"));
  }
  function mark() {
    const svg = byId("plot");
    svg.querySelectorAll(".chosen, .active").forEach((node) => node.remove());
    for (const place of places) {
      const picked = chosen.includes(place.plan.id);
      place.node.setAttribute("aria-selected", String(picked));
      if (picked) shape("circle", { class: "chosen", cx: place.x, cy: place.y, r: 12, "pointer-events": "none" }, svg);
      if (state.active === place.plan.id) shape("circle", { class: "active", cx: place.x, cy: place.y, r: 15, "pointer-events": "none" }, svg);
    }
    const active = places.find((place) => place.plan.id === state.active);
    if (active) svg.setAttribute("aria-activedescendant", active.node.id); else svg.removeAttribute("aria-activedescendant");
  }

  // -- tooltip, keyboard ----------------------------------------------------------------------------------------

  function nearest(event) {
    const box = byId("plot").getBoundingClientRect();
    const [x, y] = [(event.clientX - box.left) * W / box.width, (event.clientY - box.top) * H / box.height];
    let found = null, least = 20;
    for (const place of places) {
      const distance = Math.hypot(place.x - x, place.y - y) - (place.plan.state === "front" ? 3 : 0);
      if (distance < least) [found, least] = [place, distance];
    }
    return found;
  }
  function showTip(place) {
    const tip = byId("tip");
    tip.hidden = !place;
    if (!place) return;
    const { plan } = place;
    const lines = [element("b", {}, `${plan.id === data.starred ? "★ " : ""}${title(plan)}`), settings(plan)];
    const wanted = [...new Set([state.x, state.y, ...data.objectives.map((name) => metricAt.get(name)), metricAt.get("cost_per_hour")])];
    for (const index of wanted) {
      if (index === undefined) continue;
      const ends = plan.intervals && plan.intervals[index];
      lines.push(element("br"), `${data.metrics[index].label}: ${figure(index, plan.m[index])}` + (ends ? ` (${ends.map(number).join(" to ")})` : ""));
    }
    const same = places.filter((p) => p !== place && Math.hypot(p.x - place.x, p.y - place.y) < 1).length;
    if (plan.confidence) lines.push(element("br"), `confidence: ${plan.confidence}`);
    if (plan.validated) lines.push(element("br"), `validated: ${plan.validated}`);
    lines.push(element("br"), element("small", {}, plan.why_not || plan.limit || "feasible, but another plan is better in everything"));
    if (same) lines.push(element("br"), element("small", {}, `${same} more at this point`));
    tip.replaceChildren(...lines);
    const scale = byId("plot").getBoundingClientRect().width / W;
    const left = place.x > W / 2;
    tip.style.left = left ? "" : `${(place.x + 18) * scale}px`;
    tip.style.right = left ? `${(W - place.x + 18) * scale}px` : "";
    const down = place.y > H / 2;
    tip.style.top = down ? "" : `${(place.y + 8) * scale}px`;
    tip.style.bottom = down ? `${(H - place.y + 8) * scale}px` : "";
  }
  function toggle(id) {
    chosen = chosen.includes(id) ? chosen.filter((other) => other !== id) : [...chosen, id].slice(-6);
    mark();
    drawCompare();
    drawList();
  }
  function moveTo(step) {
    if (!places.length) return;
    const now = places.findIndex((place) => place.plan.id === state.active);
    const start = Math.max(0, places.findIndex((place) => place.plan.id === data.starred));
    const next = step === "first" ? 0 : step === "last" ? places.length - 1 : now < 0 ? start : (now + step + places.length) % places.length;
    state.active = places[next].plan.id;
    mark();
    showTip(places[next]);
  }
  function onKey(event) {
    const moves = { ArrowRight: 1, ArrowLeft: -1, ArrowUp: 1, ArrowDown: -1, Home: "first", End: "last" };
    if (event.key in moves) moveTo(moves[event.key]);
    else if ((event.key === "Enter" || event.key === " ") && state.active) toggle(state.active);
    else if (event.key === "Escape") { state.active = null; showTip(null); mark(); } else return;
    event.preventDefault();
  }

  // -- tables ---------------------------------------------------------------------------------------------------

  function drawCompare() {
    const box = byId("compare");
    const picked = chosen.map((id) => plans.find((plan) => plan.id === id));
    if (!picked.length) { box.replaceChildren(element("p", { class: "hint" }, "Nothing is selected.")); return; }
    const heads = picked.map((plan) => {
      const remove = element("button", { type: "button", "aria-label": `Remove ${title(plan)} from the comparison` }, "×");
      remove.addEventListener("click", () => toggle(plan.id));
      return element("th", { scope: "col", class: "n" }, `${plan.id === data.starred ? "★ " : ""}${title(plan)} `, remove);
    });
    const rows = [];
    data.parameters.forEach((name, i) => {
      if (new Set(picked.map((plan) => plan.p[i])).size > 1 || name === "gpu") rows.push(row(name, picked.map((plan) => plan.p[i])));
    });
    data.metrics.forEach((metric, i) => {
      const values = picked.map((plan) => plan.m[i]);
      const known = values.filter((value) => value !== null);
      const best = metric.sense === "max" ? Math.max(...known) : Math.min(...known);
      const top = Math.max(...known.map(Math.abs));
      const differ = known.length > 1 && Math.max(...known) - Math.min(...known) > NOISE * top;
      rows.push(row(metric.label, values.map((value, k) => {
        const ends = picked[k].intervals && picked[k].intervals[i];
        const parts = [figure(i, value) + (ends ? ` (${ends.map(number).join(" to ")})` : "")];
        if (differ && metric.sense && value !== null && Math.abs(value - best) <= NOISE * top) parts.push(element("span", { title: "best of these" }, " ✓"));
        if (k && !metric.share && values[0] && value !== null && Math.abs(value - values[0]) > NOISE * top) {
          parts.push(element("span", { class: "delta" }, ` ${value > values[0] ? "+" : "−"}${number(Math.abs(100 * (value / values[0] - 1)))}%`));
        }
        return parts;
      }), differ));
    });
    if (picked.some((plan) => plan.confidence)) rows.push(row("confidence", picked.map((plan) => plan.confidence || "-")));
    rows.push(row("state", picked.map(stateWords)));
    box.replaceChildren(element("div", { class: "scroll" }, element("table", {},
      element("thead", {}, element("tr", {}, element("th", { scope: "col" }, `against ${title(picked[0])}`), ...heads)), element("tbody", {}, ...rows))));
  }
  function row(heading, cells, differs = new Set(cells).size > 1) {
    return element("tr", {}, element("th", { scope: "row" }, heading),
      ...cells.map((cell) => element("td", { class: differs ? "n differs" : "n" }, ...(Array.isArray(cell) ? cell : [cell]))));
  }
  function drawList() {
    const columns = [...new Set([...data.objectives, "cost_per_hour", "ttft_mean_ms", "tpot_mean_ms", "output_tokens_per_s"])]
      .map((name) => metricAt.get(name)).filter((index) => index !== undefined);
    const rank = (plan) => [plan.id !== data.starred, plan.state !== "front", plan.state !== "feasible"].map(Number).join("");
    const list = shown.slice().sort((a, b) => rank(a).localeCompare(rank(b)));
    if (state.sort) {
      const [index, sign] = state.sort;
      list.sort((a, b) => sign * ((a.m[index] ?? Infinity) - (b.m[index] ?? Infinity)));
    }
    const heads = columns.map((index) => {
      const sorted = state.sort && state.sort[0] === index ? state.sort[1] : 0;
      const button = element("button", { type: "button" }, data.metrics[index].label + (sorted ? (sorted > 0 ? " ▲" : " ▼") : ""));
      button.addEventListener("click", () => {
        state.sort = [index, sorted ? -sorted : data.metrics[index].sense === "max" ? -1 : 1];
        drawList();
        [...byId("list").querySelectorAll("th button")][columns.indexOf(index)].focus();
      });
      return element("th", { scope: "col", class: "n", "aria-sort": sorted ? (sorted > 0 ? "ascending" : "descending") : "none" }, button);
    });
    const alike = new Map();
    for (const plan of list) {
      const key = JSON.stringify([plan.label, plan.state, plan.m]);
      alike.set(key, [...(alike.get(key) ?? []), plan]);
    }
    const groups = [...alike.values()];
    const rows = groups.slice(0, state.more ? groups.length : ROWS).map(([plan, ...same]) => {
      const tick = element("input", { type: "checkbox", "aria-label": `Compare ${title(plan)}` });
      tick.checked = chosen.includes(plan.id);
      tick.addEventListener("change", () => {
        toggle(plan.id);
        const again = byId("list").querySelector(`input[aria-label="${CSS.escape(`Compare ${title(plan)}`)}"]`);
        if (again) again.focus();
      });
      return element("tr", {}, element("td", {}, tick), element("td", {}, `${plan.id === data.starred ? "★ " : ""}${title(plan)}`),
        ...columns.map((index) => element("td", { class: "n" }, figure(index, plan.m[index]))),
        element("td", {}, stateWords(plan)), element("td", { class: "wide" }, settings(plan) + (same.length ? ` (${same.length} more with the same figures)` : "")));
    });
    const box = byId("list");
    box.replaceChildren(element("div", { class: "scroll" }, element("table", {},
      element("thead", {}, element("tr", {}, element("th", {}, ""), element("th", { scope: "col" }, "Plan"), ...heads,
        element("th", { scope: "col" }, "State"), element("th", { scope: "col" }, "Settings"))), element("tbody", {}, ...rows))));
    if (groups.length > ROWS) {
      const more = element("button", { type: "button" }, state.more ? "Show fewer" : `Show all ${groups.length}`);
      more.addEventListener("click", () => { state.more = !state.more; drawList(); });
      box.append(more);
    }
  }

  // -- controls -------------------------------------------------------------------------------------------------

  function fill(select, options, value) {
    select.replaceChildren(...options.map(([key, text]) => element("option", { value: key }, text)));
    select.value = String(value);
  }
  function buildControls() {
    const metrics = data.metrics.map((metric, index) => [index, metric.label]);
    fill(byId("x"), metrics, state.x);
    fill(byId("y"), metrics, state.y);
    fill(byId("colour"), data.parameters.length ? data.parameters.map((name, index) => [index, name]) : [[-1, "none"]], state.colour);
    for (const key of ["x", "y", "colour"]) byId(key).addEventListener("change", (event) => { state[key] = Number(event.target.value); draw(); });
    data.parameters.forEach((name, index) => {
      const values = [...new Set(plans.map((plan) => plan.p[index]))].sort(naturally);
      if (values.length > 40) return;
      const select = element("select", { "data-filter": name });
      fill(select, [["", "any"], ...values.map((value) => [value, value])], "");
      select.addEventListener("change", () => { state.filters[index] = select.value; draw(); });
      byId("filters").append(element("label", {}, `${name} `, select));
    });
    for (const id of ["front-only", "broken", "all"]) byId(id).addEventListener("change", draw);
    byId("controls").addEventListener("submit", (event) => event.preventDefault());
    byId("reset").addEventListener("click", () => {
      byId("controls").reset();
      Object.assign(state, { x: initial[0], y: initial[1], colour: initialColour(), filters: {}, sort: null });
      for (const key of ["x", "y", "colour"]) byId(key).value = String(state[key]);
      chosen = firstChoice();
      draw();
      drawCompare();
    });
  }

  byId("app").hidden = false;
  if (!plans.length) { byId("app").replaceChildren(element("p", {}, "No plan was simulated.")); return; }
  buildControls();
  const svg = byId("plot");
  svg.addEventListener("mousemove", (event) => showTip(nearest(event)));
  svg.addEventListener("mouseleave", () => showTip(null));
  svg.addEventListener("blur", () => showTip(null));
  svg.addEventListener("click", (event) => { const place = nearest(event); if (place) { state.active = place.plan.id; toggle(place.plan.id); } });
  svg.addEventListener("keydown", onKey);
  window.addEventListener("resize", draw);
  draw();
  drawCompare();
})();
