// The plot of a front: plans as points, what the limits allow as a ground, the front as a line.

import { number, shape, tickText } from "./dom.js";
import { CROSS, GLYPHS, STAR } from "./glyphs.js";
import { figure, metricIndex, stateWords, title } from "./plans.js";
import { roomyScale } from "./scales.js";

const LEAST_LEFT = 78, RIGHT = 24, TOP = 26, BOTTOM = 52, REACH = 4;

// Draw `shown` plans of `data` into `svg`; view: {x, y, colour: names, all: whether the whole range is shown,
// groups: the values of the colour's parameter}. Returns where the plans are: [{plan, node, x, y}] from left to right.
export function drawFront(svg, data, shown, view, width, height) {
  svg.replaceChildren();
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  const plot = {
    svg, data, shown, view, width, height, base: height - BOTTOM, right: width - RIGHT,
    xi: metricIndex(data, view.x), yi: metricIndex(data, view.y), places: [],
  };
  plot.y = frontAxis(plot, plot.yi, plot.base, TOP);
  // Room for the longest label between the axis and its title.
  plot.left = Math.max(LEAST_LEFT, 44 + 7.5 * Math.max(0, ...plot.y.ticks.map((tick) => tickText(tick).length)));
  plot.x = frontAxis(plot, plot.xi, plot.left, plot.right);
  drawAllowed(plot);
  drawAxes(plot);
  drawLine(plot);
  const order = { broken: 0, feasible: 1, front: 2 };
  const sorted = shown.filter((plan) => plan.m[plot.xi] !== null && plan.m[plot.yi] !== null)
    .sort((a, b) => order[a.state] - order[b.state] || (a.id === data.starred) - (b.id === data.starred));
  for (const plan of sorted) drawPoint(plot, plan);
  drawLabels(plot);
  return plot.places.sort((a, b) => a.x - b.x || a.y - b.y);
}

function frontAxis(plot, index, from, to) {
  const { data, shown, view } = plot, metric = data.metrics[index];
  const values = (some) => some.map((plan) => plan.m[index]).filter((value) => value !== null);
  const everything = values(shown);
  const focus = values(shown.filter((plan) => plan.state !== "broken"));
  const limits = data.constraints.filter(([name, , limit]) => name === metric.name && limit > 0).map(([, , limit]) => limit);
  const inner = !focus.length || view.all ? [...everything, ...limits] : [...focus, ...limits];
  let low = Math.min(...inner), high = Math.max(...inner);
  for (const value of everything) if (low / REACH <= value && value <= high * REACH) { low = Math.min(low, value); high = Math.max(high, value); }
  return { ...roomyScale(inner.length ? [low, high] : [], from, to, metric.name === "gpus"), metric };
}

function drawAllowed({ svg, data, x, y }) {
  const box = { x: [x.low, x.high], y: [y.low, y.high] };
  let limited = false;
  for (const [name, operator, limit] of data.constraints) {
    for (const [key, axis] of [["x", x], ["y", y]]) {
      if (axis.metric.name !== name) continue;
      limited = true;
      if (operator.includes("<")) box[key][1] = Math.min(box[key][1], limit);
      else box[key][0] = Math.max(box[key][0], limit);
    }
  }
  if (limited && box.x[0] < box.x[1] && box.y[0] < box.y[1]) {
    shape("rect", { class: "allowed", x: x.at(box.x[0]), y: y.at(box.y[1]), width: x.at(box.x[1]) - x.at(box.x[0]), height: y.at(box.y[0]) - y.at(box.y[1]) }, svg);
  }
}

function drawAxes({ svg, data, x, y, left, base, right, height }) {
  shape("path", { class: "axis", d: `M${left},${TOP}V${base}H${right}`, fill: "none" }, svg);
  let written = -Infinity;
  for (const tick of x.ticks) {
    shape("path", { class: "axis", d: `M${x.at(tick)},${base}v5` }, svg);
    const half = 3.5 * tickText(tick).length;
    if (x.at(tick) - half < written + 6) continue;
    written = x.at(tick) + half;
    shape("text", { class: "tick", x: x.at(tick), y: base + 18, "text-anchor": "middle" }, svg, tickText(tick));
  }
  for (const tick of y.ticks) {
    shape("path", { class: "axis", d: `M${left},${y.at(tick)}h-5` }, svg);
    shape("text", { class: "tick", x: left - 9, y: y.at(tick) + 4, "text-anchor": "end" }, svg, tickText(tick));
  }
  const better = (metric, low, high) => metric.sense === "max" ? `${metric.label} ${high} better` : metric.sense ? `${low} better: ${metric.label}` : metric.label;
  shape("text", { x: (left + right) / 2, y: height - 12, "text-anchor": "middle" }, svg, better(x.metric, "←", "→"));
  shape("text", { transform: `translate(18,${(TOP + base) / 2}) rotate(-90)`, "text-anchor": "middle" }, svg, better(y.metric, "←", "→"));
  for (const [name, operator, limit] of data.constraints) {
    const text = `limit ${operator.replace("<=", "≤").replace(">=", "≥")} ${number(limit)}`;
    if (x.metric.name === name && x.inside(limit)) {
      shape("path", { class: "limit", d: `M${x.at(limit)},${TOP}V${base}` }, svg);
      shape("text", { class: "limit-text", x: x.at(limit) - 5, y: TOP + 10, "text-anchor": "end" }, svg, text);
    }
    if (y.metric.name === name && y.inside(limit)) {
      shape("path", { class: "limit", d: `M${left},${y.at(limit)}H${right}` }, svg);
      shape("text", { class: "limit-text", x: left + 6, y: y.at(limit) - 5 }, svg, text);
    }
  }
}

function drawLine({ svg, shown, x, y, xi, yi }) {
  const sign = [x, y].map((axis) => axis.metric.sense === "max" ? -1 : 1);
  const front = shown.filter((plan) => plan.state === "front" && plan.m[xi] !== null && plan.m[yi] !== null);
  front.sort((a, b) => sign[0] * (a.m[xi] - b.m[xi]) || sign[1] * (a.m[yi] - b.m[yi]));
  let best = Infinity;
  const kept = front.filter((plan) => sign[1] * plan.m[yi] < best && ((best = sign[1] * plan.m[yi]), true));
  if (kept.length > 1) shape("path", { class: "line", d: "M" + kept.map((plan) => `${x.at(plan.m[xi])},${y.at(plan.m[yi])}`).join("L") }, svg);
}

function drawPoint(plot, plan) {
  const { svg, data, view, x, y, xi, yi } = plot;
  const px = x.at(plan.m[xi]), py = y.at(plan.m[yi]);
  const kind = view.groups.indexOf(plan.p[data.parameters.indexOf(view.colour)] ?? "") % GLYPHS.length;
  const beyond = !x.inside(plan.m[xi]) || !y.inside(plan.m[yi]);
  for (const [index, axis, vertical] of [[xi, x, false], [yi, y, true]]) {
    const ends = plan.intervals && plan.intervals[index];
    if (ends && !beyond) {
      const [a, b] = ends.map(axis.at);
      shape("path", { class: "bar", d: vertical ? `M${px},${a}V${b}` : `M${a},${py}H${b}` }, svg);
    }
  }
  const starred = plan.id === data.starred;
  const size = beyond ? " scale(.6)" : plan.state === "feasible" ? " scale(.75)" : "";
  const node = shape("path", {
    d: starred ? STAR : plan.state === "broken" ? CROSS : GLYPHS[kind], id: `p-${data.plans.indexOf(plan)}`, role: "option",
    class: `point ${starred ? "starred" : plan.state}`, transform: `translate(${px},${py})${size}`, "aria-label": spoken(plot, plan),
  }, svg);
  if (!starred && plan.state !== "broken") node.style.fill = `var(--c${kind})`;
  plot.places.push({ plan, node, x: px, y: py });
}

function spoken({ data, xi, yi }, plan) {
  const figures = [xi, yi].map((index) => `${data.metrics[index].label} ${figure(data.metrics[index], plan.m[index])}`).join(", ");
  return `${plan.id === data.starred ? "recommended, " : ""}${title(plan)}, ${stateWords(plan)}, ${figures}`;
}

function drawLabels({ svg, data, places, width, left, base }) {
  const boxes = [], written = [];
  const several = data.parameters.indexOf("gpu");
  for (const place of places.filter((p) => p.plan.state === "front").reverse()) {
    const text = place.plan.label + (several >= 0 ? ` ${place.plan.p[several].split("-")[0]}` : "");
    if (written.some((other) => other.text === text && Math.hypot(other.x - place.x, other.y - place.y) < 70)) continue;
    const length = 7 * text.length;
    for (const [dx, dy] of [[16, -10], [16, 4], [16, 20], [-length / 2, -18], [-length / 2, 28], [-16 - length, -10], [-16 - length, 20]]) {
      const box = [place.x + dx, place.y + dy - 11, place.x + dx + length, place.y + dy + 2];
      const free = box[0] > left && box[2] < width - 4 && box[1] > 4 && box[3] < base - 2
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

// Rings around the plans that are `chosen` (ids) and the one that is `active`.
export function markFront(svg, places, chosen, active) {
  svg.querySelectorAll(".chosen, .active").forEach((node) => node.remove());
  for (const place of places) {
    const picked = chosen.includes(place.plan.id);
    place.node.setAttribute("aria-selected", String(picked));
    if (picked) shape("circle", { class: "chosen", cx: place.x, cy: place.y, r: 12, "pointer-events": "none" }, svg);
    if (active === place.plan.id) shape("circle", { class: "active", cx: place.x, cy: place.y, r: 15, "pointer-events": "none" }, svg);
  }
  const at = places.find((place) => place.plan.id === active);
  if (at) svg.setAttribute("aria-activedescendant", at.node.id); else svg.removeAttribute("aria-activedescendant");
}
