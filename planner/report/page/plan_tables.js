// Tables of plans: some side by side, and all that are shown.

import { element, number, scrollTable } from "./dom.js";
import { figure, metricIndex, settings, starredTitle, stateWords, title } from "./plans.js";

const ROWS = 12, NOISE = 0.0005;

// The plans `picked` side by side, against the first; `remove(id)` takes one out.
export function compareTable(data, picked, remove) {
  if (!picked.length) return element("p", { class: "hint" }, "Nothing is selected.");
  const heads = picked.map((plan) => element("th", { scope: "col", class: "n" }, `${starredTitle(data, plan)} `,
    element("button", {
      type: "button", "data-key": `remove-${plan.id}`, "aria-label": `Remove ${title(plan)} from the comparison`, onclick: () => remove(plan.id),
    }, "×")));
  const rows = [];
  data.parameters.forEach((name, i) => {
    const values = picked.map((plan) => plan.p[i]);
    if (new Set(values).size > 1 || name === "gpu") rows.push(compareRow(name, values));
  });
  data.metrics.forEach((metric, i) => rows.push(metricRow(metric, i, picked)));
  if (picked.some((plan) => plan.confidence)) rows.push(compareRow("confidence", picked.map((plan) => plan.confidence || "-")));
  rows.push(compareRow("state", picked.map(stateWords)));
  return scrollTable([element("th", { scope: "col" }, `against ${title(picked[0])}`), ...heads], rows);
}

function metricRow(metric, index, picked) {
  const values = picked.map((plan) => plan.m[index]);
  const known = values.filter((value) => value !== null);
  const best = metric.sense === "max" ? Math.max(...known) : Math.min(...known);
  const top = Math.max(...known.map(Math.abs));
  const differ = known.length > 1 && Math.max(...known) - Math.min(...known) > NOISE * top;
  return compareRow(metric.label, values.map((value, k) => {
    const ends = picked[k].intervals && picked[k].intervals[index];
    const parts = [figure(metric, value) + (ends ? ` (${ends.map(number).join(" to ")})` : "")];
    if (differ && metric.sense && value !== null && Math.abs(value - best) <= NOISE * top) parts.push(element("span", { title: "best of these" }, " ✓"));
    if (k && !metric.share && values[0] && value !== null && Math.abs(value - values[0]) > NOISE * top) {
      parts.push(element("span", { class: "delta" }, ` ${value > values[0] ? "+" : "−"}${number(Math.abs(100 * (value / values[0] - 1)))}%`));
    }
    return parts;
  }), differ);
}

function compareRow(heading, cells, differs = new Set(cells).size > 1) {
  return element("tr", {}, element("th", { scope: "row" }, heading),
    ...cells.map((cell) => element("td", { class: differs ? "n differs" : "n" }, ...(Array.isArray(cell) ? cell : [cell]))));
}

// Every plan of `shown`, those with the same figures on one row. view: {sort: [metric, sign] or null, more, chosen: ids,
// onSort(metric), onMore(), onToggle(id), link(plan) or undefined: where a plan's title leads}.
export function planList(data, shown, view) {
  const columns = [...new Set([...data.objectives, "cost_per_hour", "ttft_mean_ms", "tpot_mean_ms", "output_tokens_per_s"])]
    .map((name) => metricIndex(data, name)).filter((index) => index >= 0);
  const groups = alikePlans(sortedPlans(data, shown, view.sort));
  const differ = groups.some(([plan, ...same]) => settings(data, plan) || same.length);
  const rows = groups.slice(0, view.more ? groups.length : ROWS).map(([plan, ...same]) => {
    const tick = element("input", {
      type: "checkbox", "aria-label": `Compare ${title(plan)}`, "data-key": `tick-${plan.id}`, onchange: () => view.onToggle(plan.id),
    });
    tick.checked = view.chosen.includes(plan.id);
    const name = starredTitle(data, plan);
    const also = same.length ? ` (${same.length} more with the same figures)` : "";
    return element("tr", {}, element("td", {}, tick),
      element("td", {}, view.link ? element("a", { href: view.link(plan), "data-key": `plan-${plan.id}` }, name) : name),
      ...columns.map((index) => element("td", { class: "n" }, figure(data.metrics[index], plan.m[index]))),
      element("td", {}, stateWords(plan)), ...(differ ? [element("td", { class: "wide" }, settings(data, plan) + also)] : []));
  });
  const heads = columns.map((index) => sortHead(data.metrics[index], view));
  const table = scrollTable([element("th", {}, ""), element("th", { scope: "col" }, "Plan"), ...heads,
    element("th", { scope: "col" }, "State"), ...(differ ? [element("th", { scope: "col" }, "Settings")] : [])], rows);
  if (groups.length <= ROWS) return [table];
  return [table, element("button", { type: "button", "data-key": "more", onclick: view.onMore }, view.more ? "Show fewer" : `Show all ${groups.length}`)];
}

function sortHead(metric, view) {
  const sorted = view.sort && view.sort[0] === metric.name ? view.sort[1] : 0;
  const arrow = sorted ? (sorted > 0 ? " ▲" : " ▼") : "";
  const button = element("button", { type: "button", "data-key": `sort-${metric.name}`, onclick: () => view.onSort(metric) }, metric.label + arrow);
  return element("th", { scope: "col", class: "n", "aria-sort": sorted ? (sorted > 0 ? "ascending" : "descending") : "none" }, button);
}

function sortedPlans(data, shown, sort) {
  const rank = (plan) => [plan.id !== data.starred, plan.state !== "front", plan.state !== "feasible"].map(Number).join("");
  const list = shown.slice().sort((a, b) => rank(a).localeCompare(rank(b)));
  if (sort) {
    const index = metricIndex(data, sort[0]);
    list.sort((a, b) => sort[1] * ((a.m[index] ?? Infinity) - (b.m[index] ?? Infinity)));
  }
  return list;
}

function alikePlans(list) {
  const alike = new Map();
  for (const plan of list) {
    const key = JSON.stringify([plan.label, plan.state, plan.m]);
    alike.set(key, [...(alike.get(key) ?? []), plan]);
  }
  return [...alike.values()];
}
