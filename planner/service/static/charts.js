// Line charts: shares of requests by latency, and what a replica does over time.

import { element, number, shape, tickText } from "./shared/dom.js";
import { scale, ticks } from "./shared/scales.js";
import { upper } from "./replay_run.js";

const H = 230, LEFT = 62, RIGHT = 14, TOP = 12, BOTTOM = 40;
const NARROW = 700, WIDTHS = [350, 560];  // pixels of a chart below and above a page's width, so that its words keep their size
const DASHES = ["", "7 3", "2 3", "8 3 2 3"];
const LOG_RATIO = 20, MOST_NAMED = 10;

// A chart of `lines`: [{name, x: [...], y: [... or null], steps: bool, thick: bool, colour: number or null for ink}].
// options: {x: label, y: label, top: the highest y or undefined, log, words: (line, x, y) => text, share: y as percent}.
export function lineChart(caption, lines, options) {
  const W = WIDTHS[window.innerWidth < NARROW ? 0 : 1];
  const svg = shape("svg", { class: "chart", viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": `${caption}, ${options.x} against ${options.y}` });
  const readout = element("p", { class: "readout" });
  const figure = element("figure", {}, element("figcaption", {}, caption), svg, readout);
  const known = lines.flatMap((line) => line.x.filter((_, i) => line.y[i] !== null && line.y[i] !== undefined));
  if (!known.length) { figure.replaceChildren(element("figcaption", {}, caption), element("p", { class: "hint" }, "No values.")); return figure; }
  const x = options.log ? scale(Math.min(...known.filter((v) => v > 0)), Math.max(...known), LEFT, W - RIGHT, true)
    : scale(options.from ?? Math.min(0, ...known), Math.max(...known, (options.from ?? 0) + 1e-9), LEFT, W - RIGHT);
  const highest = options.top ?? Math.max(1e-9, ...lines.flatMap((line) => line.y.filter((v) => v !== null))) * 1.05;
  const y = scale(0, highest, H - BOTTOM, TOP);
  drawFrame(svg, W, x, { ...y, ticks: ticks(0, highest, false, 4) }, options);
  for (const line of lines) shape("path", { d: pathOf(line, x, y), fill: "none", class: "series", ...strokeOf(line) }, svg);
  const cursor = shape("path", { class: "cursor", d: "" }, svg);
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect(), px = Math.min(W - RIGHT, Math.max(LEFT, (event.clientX - box.left) * W / box.width));
    const share = (px - LEFT) / (W - RIGHT - LEFT), at = x.log ? x.low * (x.high / x.low) ** share : x.low + share * (x.high - x.low);
    cursor.setAttribute("d", `M${px},${TOP}V${H - BOTTOM}`);
    readout.textContent = options.words(at, (line) => valueAt(line, at));
  });
  svg.addEventListener("pointerleave", () => { cursor.setAttribute("d", ""); readout.textContent = options.note ?? ""; });
  readout.textContent = options.note ?? "";
  return figure;
}

export const dashOf = (index) => DASHES[Math.floor(index / 2) % DASHES.length];
const strokeOf = (line) => ({
  stroke: line.colour === null ? "var(--ink)" : `var(--c${line.colour % 8})`, "stroke-width": line.thick ? 2.2 : 1.1,
  "stroke-dasharray": line.dash ?? "", "stroke-opacity": line.thick ? 1 : 0.85,
});

function valueAt(line, at) {
  const k = upper(line.x, at) - 1;
  return k < 0 ? null : line.y[Math.min(k, line.y.length - 1)];
}

// Steps hold a value from one x to the next; a null leaves a gap.
function pathOf(line, x, y) {
  let d = "", pen = false;
  for (let i = 0; i < line.y.length; i++) {
    if (line.y[i] === null || (x.log && line.x[i] <= 0)) { pen = false; continue; }
    const px = x.at(line.x[i]).toFixed(1), py = y.at(line.y[i]).toFixed(1);
    d += pen ? (line.steps ? `H${px}V${py}` : `L${px},${py}`) : `M${px},${py}`;
    pen = true;
    if (line.steps && i + 1 < line.x.length && (i + 1 === line.y.length || line.y[i + 1] === null)) d += `H${x.at(line.x[i + 1]).toFixed(1)}`;
  }
  return d;
}

function drawFrame(svg, W, x, y, options) {
  const base = H - BOTTOM;
  for (const tick of y.ticks) {
    shape("path", { class: "grid", d: `M${LEFT},${y.at(tick)}H${W - RIGHT}` }, svg);
    shape("text", { class: "tick", x: LEFT - 6, y: y.at(tick) + 4, "text-anchor": "end" }, svg, options.share ? `${Math.round(100 * tick)}%` : tickText(tick));
  }
  shape("path", { class: "axis", d: `M${LEFT},${TOP}V${base}H${W - RIGHT}` }, svg);
  let written = -Infinity;
  for (const tick of x.ticks) {
    const at = x.at(tick), half = 3.4 * tickText(tick).length;
    shape("path", { class: "axis", d: `M${at},${base}v4` }, svg);
    if (at - half < written + 8 || at + half > W) continue;
    written = at + half;
    shape("text", { class: "tick", x: at, y: base + 16, "text-anchor": "middle" }, svg, tickText(tick));
  }
  shape("text", { x: (LEFT + W - RIGHT) / 2, y: H - 6, "text-anchor": "middle" }, svg, options.x);
  shape("text", { transform: `translate(13,${(TOP + base) / 2}) rotate(-90)`, "text-anchor": "middle" }, svg, options.y);
}

const LATENCIES = [["ttft_ms", "TTFT"], ["tpot_ms", "TPOT"], ["e2e_ms", "E2E latency"], ["queue_ms", "Time in queue"]];

// The share of requests within each latency; `named` is [[name, {ttft_ms: {x, p}, ...}], ...], at most four.
export function cdfCharts(named) {
  return element("div", { class: "charts" }, ...LATENCIES.filter(([key]) => named.some(([, cdf]) => cdf[key]?.x.length)).map(([key, label]) => {
    const lines = named.map(([name, cdf], i) => ({
      name, x: cdf[key]?.x ?? [], y: cdf[key]?.p ?? [], steps: true, thick: true, colour: [0, 1, 2, 7][i], dash: DASHES[i],
    }));
    const positive = lines.flatMap((line) => line.x.filter((v) => v > 0));
    const log = key !== "queue_ms" && positive.length > 0 && Math.max(...positive) / Math.min(...positive) > LOG_RATIO;
    return lineChart(label, lines, {
      x: `${label} (ms)`, y: "share of requests", top: 1.02, log, share: true, note: noteOf(lines),
      words: (at, value) => `within ${number(Number(at.toPrecision(3)))} ms: ${lines.map((line) => `${lines.length > 1 ? `${line.name} ` : ""}${Math.round(100 * (value(line) ?? 0))}%`).join(", ")}`,
    });
  }));
}

function noteOf(lines) {
  const at = (line, share) => line.x[Math.min(line.x.length - 1, line.y.findIndex((p) => p >= share))];
  return lines.filter((line) => line.x.length).map((line) =>
    `${lines.length > 1 ? `${line.name}: ` : ""}p50 ${number(at(line, 0.5))}, p90 ${number(at(line, 0.9))}, p99 ${number(at(line, 0.99))} ms`).join("; ");
}

const OVER_TIME = [
  ["waiting", "Requests waiting", "requests", false], ["running", "Requests running", "requests", false],
  ["kv_usage", "KV cache in use", "of the replica's blocks", true], ["hit_rate", "Prefix-cache hit rate", "of the prompt tokens", true],
];

// What the replicas do over time, from a simulation's timeline: a thin line a replica, a thick one for the mean of each pool.
export function timelineCharts(timeline) {
  const { edges_s: edges, replicas, names } = timeline;
  return element("div", { class: "charts" }, ...OVER_TIME.map(([key, caption, unit, share]) => {
    const lines = replicas.map((replica, i) => ({ name: names[i], x: edges, y: replica[key], steps: true, colour: i, dash: dashOf(i) }));
    const pools = [...new Set(names.map((name) => name[0]))].map((pool) => lines.filter((line) => line.name[0] === pool));
    const means = pools.filter((pool) => pool.length > 1).map((pool, i) => ({
      name: pools.length > 1 ? `mean of ${pool[0].name[0]}` : "mean", x: edges, y: meanOf(pool), steps: true, thick: true, colour: null, dash: DASHES[i],
    }));
    const all = [...(lines.length > 1 ? lines : [{ ...lines[0], thick: true }]), ...means];
    const words = (v) => v === null ? "-" : share ? `${number(Number((100 * v).toPrecision(3)))}%` : number(v);
    return lineChart(caption, all, {
      x: "time (s)", y: share ? `share ${unit}` : unit, share, top: key === "hit_rate" ? 1.02 : undefined,
      words: (at, value) => `at ${number(Number(at.toPrecision(3)))} s: ${(all.length > MOST_NAMED ? means : all).map((line) => `${line.name} ${words(value(line))}`).join(", ")}`,
    });
  }));
}

// Shares of a whole as one bar, with their names: {name: share}.
export function shareBar(caption, shares) {
  const parts = Object.entries(shares).filter(([, share]) => share >= 0.005).sort((a, b) => b[1] - a[1]), svg = shape("svg", { class: "shares", viewBox: "0 0 100 6", preserveAspectRatio: "none", "aria-hidden": "true" });
  let at = 0;
  parts.forEach(([, share], i) => {
    shape("rect", { x: 100 * at, y: 0, width: Math.max(0.2, 100 * share - 0.15), height: 6, fill: `var(--c${i % 8})` }, svg);
    at += share;
  });
  return element("figure", { class: "share-bar" }, element("figcaption", {}, caption), svg, element("p", { class: "legend" }, ...parts.map(([name, share], i) => {
    const swatch = element("i", { class: "swatch", "aria-hidden": "true" });
    swatch.style.background = `var(--c${i % 8})`;
    return element("span", {}, swatch, ` ${name.replaceAll("_", " ")} ${Math.round(100 * share)}%`);
  })));
}

function meanOf(lines) {
  return lines[0]?.y.map((_, i) => {
    const known = lines.map((line) => line.y[i]).filter((v) => v !== null);
    return known.length ? known.reduce((a, b) => a + b, 0) / known.length : null;
  }) ?? [];
}
