// The plans of a run as the page gets them: their figures in words, and what is shown first.
//
// data: {metrics: [{name, label, sense, share}], parameters: [name], constraints: [[metric, operator, limit]],
//        objectives: [metric], starred: id or null, left_out: count,
//        plans: [{id, label, state: front | feasible | broken, p: [by parameter], m: [by metric], ...}]}

import { number, percent } from "./dom.js";

export function figure(metric, value) {
  if (value === null || value === undefined) return "-";
  if (metric.name.startsWith("cost_")) return "$" + value.toFixed(2);
  return metric.share ? percent(value) : number(value);
}
export const title = (plan) => `${plan.label} ${plan.id}`;
export const starredTitle = (data, plan) => `${plan.id === data.starred ? "★ " : ""}${title(plan)}`;
export const stateWords = (plan) => ({ front: "on the front", feasible: "feasible", broken: "breaks a limit" })[plan.state];
export const metricIndex = (data, name) => data.metrics.findIndex((metric) => metric.name === name);

export function settings(data, plan) {
  return data.parameters
    .map((name, i) => [name, plan.p[i]])
    .filter(([name]) => !/^(prefill_)?(tensor_parallel_size|replicas)$/.test(name))
    .map(([name, value]) => `${name} ${value}`).join(", ");
}

// The two metrics in which the front spreads most; what is paid goes across.
export function initialAxes(data) {
  const known = (name) => metricIndex(data, name) >= 0;
  const spread = (name) => {
    const index = metricIndex(data, name);
    const values = data.plans.filter((plan) => plan.state === "front").map((plan) => plan.m[index]).filter((v) => v !== null);
    const top = Math.max(...values.map(Math.abs), 0);
    return top ? (Math.max(...values) - Math.min(...values)) / top : 0;
  };
  let names = data.objectives.filter(known).sort((a, b) => spread(b) - spread(a));
  for (const name of ["cost_per_hour", "ttft_mean_ms", "output_tokens_per_s"]) {
    if (names.length < 2 && known(name) && !names.includes(name)) names.push(name);
  }
  names = names.slice(0, 2);
  if (names[1] === "gpus" || names[1] === "cost_per_hour") names.reverse();
  const first = data.metrics[0]?.name ?? "";
  return [names[0] ?? first, names[1] ?? names[0] ?? first];
}

export function initialColour(data) {
  const usual = ["gpu", "replicas", "tensor_parallel_size", "max_num_seqs"];
  return usual.find((name) => data.parameters.includes(name)) ?? data.parameters[0] ?? "";
}

// The recommended plan, and the first of each other size on the front: three to compare.
export function firstChoice(data) {
  const front = data.plans.filter((plan) => plan.state === "front");
  const pool = (front.length ? front : data.plans).slice();
  pool.sort((a, b) => (b.id === data.starred) - (a.id === data.starred));
  const seen = new Set();
  return pool.filter((plan) => !seen.has(plan.label) && seen.add(plan.label)).slice(0, 3).map((plan) => plan.id);
}
