// Two plans, or two runs, side by side.

import { element, number, scrollTable } from "./shared/dom.js";
import { get } from "./api.js";
import { cdfCharts } from "./charts.js";
import { fillFrom, panel } from "./ui.js";

export function showCompare(main, { kind }, query) {
  const ended = new AbortController(), box = element("div", {});
  const [a, b] = [query.get("a") ?? "", query.get("b") ?? ""], runs = kind === "runs";
  main.replaceChildren(element("p", { class: "crumbs" }, element("a", { href: "#/runs" }, "Runs"), " › compare"), element("h1", {}, runs ? "Two runs" : "Two plans"), box);
  const path = `/compare/${runs ? "runs" : "plans"}?a=${encodeURIComponent(a)}&b=${encodeURIComponent(b)}`;
  fillFrom(box, runs ? "Comparing ..." : "Simulating both on the same requests ...", () => get(path, ended.signal), (found) => runs ? runParts(found) : planParts(found, a, b));
  return () => ended.abort();
}

const planLink = (words, target) => element("a", { href: `#/runs/${target.replace("/", "/plans/")}` }, words);

function planParts(found, a, b) {
  const names = [found.a.name, found.b.name];
  const heads = (first) => [first, "A", "B"].map((words, i) => element("th", { scope: "col", class: i ? "n" : null }, words));
  const sooner = Object.entries(found.sooner_with_b ?? {}).filter(([, share]) => share !== null)
    .map(([name, share]) => `${Math.round(100 * share)}% of the requests have a lower ${name.toUpperCase()} with B`);
  const kind = (words) => words?.includes("better") ? "n better" : words?.includes("worse") ? "n worse" : "n";
  return [
    element("p", {}, "A: ", planLink(names[0], a), element("br"), "B: ", planLink(names[1], b)),
    found.same_requests ? element("p", {}, `Both serve the same requests. ${sooner.join("; ")}${sooner.length ? "." : ""}`) : element("p", {}, "They serve different requests."),
    element("div", { class: "two" },
      panel("Settings that differ", found.differs.length ? scrollTable(heads("Parameter"), found.differs.map((row) => element("tr", {}, element("th", { scope: "row" }, row.parameter),
        element("td", { class: "n" }, words(row.a)), element("td", { class: "n" }, words(row.b))))) : element("p", {}, "None.")),
      panel("Metrics", scrollTable([...heads("Metric"), element("th", { scope: "col", class: "n" }, "B against A")], found.rows.map((row) => element("tr", {}, element("th", { scope: "row" }, row.label),
        element("td", { class: "n" }, number(row.a)), element("td", { class: "n" }, number(row.b)), element("td", { class: kind(row.change) }, row.change ?? "")))))),
    panel("Latency of the requests", cdfCharts([["A", side(found.cdf, "a")], ["B", side(found.cdf, "b")]]), legend(names)),
  ];
}

const words = (value) => value !== null && typeof value === "object" ? `${value.name ?? ""} ${Object.entries(value.parameters ?? {}).map(([k, v]) => `${k}=${v}`).join(", ")}`.trim() : String(value);
const side = (cdf, which) => Object.fromEntries(Object.entries(cdf).map(([key, both]) => [key, both[which]]));
const legend = (names) => element("p", { class: "legend" }, ...names.map((name, i) => element("span", {}, element("i", { class: `swatch line-${"ab"[i]}`, "aria-hidden": "true" }), ` ${"AB"[i]}: ${name}`)));

function runParts({ a, b, lines, same_front: same }) {
  const groups = { "+": "Came to the front", "-": "Left the front", "=": "Stayed, with other figures" };
  const of = (sign) => lines.filter((line) => line.startsWith(`${sign} `)).map((line) => element("li", {}, line.slice(2)));
  const rest = lines.filter((line) => !/^[-+=] /.test(line));
  return [
    element("p", {}, "From ", element("a", { href: `#/runs/${a}` }, a), " to ", element("a", { href: `#/runs/${b}` }, b), `: ${same ? "the front is the same." : "the front changed."}`),
    rest.length ? panel("What differs in the question", element("ul", {}, ...rest.map((line) => element("li", {}, line)))) : null,
    ...Object.entries(groups).map(([sign, heading]) => of(sign).length ? panel(heading, element("ul", {}, ...of(sign))) : null),
  ].filter(Boolean);
}
