// A plan: its figures and margins, its latencies, what its replicas do over time, and what limits it.

import { element, number, percent, scrollTable } from "./shared/dom.js";
import { address, get } from "./api.js";
import { cdfCharts, shareBar, timelineCharts } from "./charts.js";
import { marginTable } from "./run_view.js";
import { facts, fillFrom, panel } from "./ui.js";

const STATISTICS = ["mean", "p50", "p90", "p95", "p99", "max"];
const LATENCIES = [["ttft", "TTFT"], ["tpot", "TPOT"], ["itl", "ITL"], ["e2e", "E2E"], ["queue", "In queue"]];
const LATENCY = /^(ttft|tpot|itl|e2e|queue)_(mean|p50|p90|p95|p99|max)_ms$/, SHARE = /(utilization|utilization_mean|hit_rate|attainment|shed_rate)$/;
const SEEN = 0.005;  // of a metric: what a change brings below that is not worth words

export function showPlan(main, { job, plan }) {
  const ended = new AbortController(), path = `/jobs/${job}/plans/${plan}`;
  const heading = element("h1", {}, `Plan ${plan}`);
  const [detail, shape, explain] = [element("div", {}), element("div", {}), element("div", {})];
  main.replaceChildren(element("p", { class: "crumbs" }, element("a", { href: "#/runs" }, "Runs"), " › ", element("a", { href: `#/runs/${job}` }, job), ` › plan ${plan}`),
    heading, detail, panel("Simulated again, request by request", shape), panel("What limits it", explain));
  const load = async () => {
    let labels = new Map();
    const known = async () => {
      const [found, catalog] = await Promise.all([get(path, ended.signal), get("/catalog", ended.signal)]);
      labels = new Map(catalog.metrics.map(({ name, label }) => [name, label]));
      return found;
    };
    await fillFrom(detail, "Reading the plan ...", known, (found) => {
      heading.textContent = `${found.recommended ? "★ " : ""}${found.label} on ${found.gpu}`;
      document.title = `${found.label} ${plan} - Capacity planner`;
      return detailParts(job, found, labels);
    });
    await fillFrom(shape, "Simulating ...", () => get(`${path}/simulation`, ended.signal), simulationParts);
    await fillFrom(explain, "Trying what a change would bring ...", () => get(`${path}/explain`, ended.signal), (found) => explainParts(found, labels));
  };
  load();
  return () => ended.abort();
}

function detailParts(job, plan, labels) {
  const state = plan.front ? "on the front" : plan.feasible ? "feasible, but another plan is better in everything" : plan.why_not || "breaks a limit";
  const rows = [["Plan", plan.id], ["State", `${plan.recommended ? "recommended, " : ""}${state}`], ["What limits it", plan.limit], ["Settings", plan.settings], ...(plan.certainty ?? []), ...(plan.costs ?? [])];
  const yaml = plan.plan_yaml ? element("details", {}, element("summary", {}, "plan.yaml"), element("pre", { tabindex: 0, "aria-label": "plan.yaml" }, plan.plan_yaml),
    element("a", { class: "button", href: address(`/jobs/${job}/artefacts/plans/${plan.id}.yaml?download=1`), download: "" }, `Download ${plan.id}.yaml`)) : null;
  const margins = plan.margins?.length ? [element("h3", {}, "Margin to each limit"), marginTable(plan.margins)] : [];
  return [
    element("div", { class: "actions" }, element("a", { class: "button primary", href: `#/runs/${job}/plans/${plan.id}/replay` }, "Replay"),
      element("a", { class: "button", href: `#/runs/${job}` }, "Back to the run")),
    element("div", { class: "two" }, panel("The plan", facts(rows.filter(([, words]) => words)), yaml), panel("Latencies", latencyTable(plan.metrics), ...margins)),
    panel("Other metrics", metricList(plan.metrics, labels)),
  ];
}

// A metric's value as its name asks: a share in percent, money in dollars.
const valued = (name, value) => SHARE.test(name) ? percent(value) : name.startsWith("cost_") && value !== null ? `$${value.toFixed(2)}` : number(value);

function metricList(metrics, labels) {
  const known = Object.entries(metrics).filter(([name, value]) => value !== null && !LATENCY.test(name) && !name.includes("."));
  return element("dl", { class: "metrics" }, ...known.map(([name, value]) => element("div", {}, element("dt", {}, labels.get(name) ?? name), element("dd", {}, valued(name, value)))));
}

function latencyTable(metrics) {
  const kinds = LATENCIES.filter(([kind]) => `${kind}_mean_ms` in metrics);
  return scrollTable([element("th", { scope: "col" }, "ms"), ...STATISTICS.map((name) => element("th", { scope: "col", class: "n" }, name))],
    kinds.map(([kind, words]) => element("tr", {}, element("th", { scope: "row" }, words),
      ...STATISTICS.map((name) => element("td", { class: "n" }, number(metrics[`${kind}_${name}_ms`]))))));
}

function simulationParts({ cdf, timeline }) {
  const several = timeline.replicas.length > 1;
  const left = timeline.replicas_left_out ? ` ${timeline.replicas_left_out} more replicas are not drawn.` : "";
  return [element("h3", {}, "Latency of the requests"), cdfCharts([["plan", cdf]]), element("h3", {}, "Over time"),
    element("p", { class: "hint" }, `${several ? `Thin: each replica. Thick: their mean${timeline.names[0][0] === "p" ? ", of the prefill pool (p) and dashed of the decode pool (d)" : ""}. ` : ""}Point at a chart for its values.${left}`), timelineCharts(timeline)];
}

function explainParts({ words, base, metrics, changes, time_parts: parts }, labels) {
  const heads = [element("th", { scope: "col" }, "Change"), ...metrics.map((name) => element("th", { scope: "col", class: "n" }, labels.get(name) ?? name))];
  const gained = (share) => Math.abs(share ?? 0) < SEEN ? null
    : element("span", { class: share > 0 ? "delta better" : "delta worse" }, ` ${Math.max(1, Math.round(Math.abs(100 * share)))}% ${share > 0 ? "better" : "worse"}`);
  const cells = (values, gain) => metrics.map((name) => element("td", { class: "n" }, number(values?.[name]), gained(gain?.[name])));
  const rows = [element("tr", {}, element("th", { scope: "row" }, "as it is"), ...cells(base)),
    ...changes.map((change) => element("tr", {}, element("th", { scope: "row" }, change.change),
      ...(change.refused ? [element("td", { colspan: metrics.length }, change.refused)] : cells(change.metrics, change.gain))))];
  return [element("ul", {}, ...words.map((sentence) => element("li", {}, sentence))), 
    parts && Object.keys(parts).length ? shareBar("Where the replicas' time goes", parts) : "", scrollTable(heads, rows)];
}
