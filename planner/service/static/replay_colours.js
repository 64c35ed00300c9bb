// The colours of a replay: a hue for where a prompt's beginning came from, a shade for what happens to the request.

export const SOURCES = {
  new: { colour: "--new", words: "new: shared with no earlier request" },
  cache: { colour: "--c2", words: "cache: this replica had it" },
  elsewhere: { colour: "--c1", words: "elsewhere: another replica had it, this one did not" },
  remote: { colour: "--c6", words: "remote: computed by the prefill pool, and moved here" },
  host: { colour: "--c5", words: "host: loaded from the host's memory" },
  peer: { colour: "--c4", words: "peer: loaded from another machine's memory" },
  disk: { colour: "--c0", words: "disk: loaded from storage" },
  lost: { colour: "--c3", words: "lost: this replica had it, and has it no more (or not yet)" },
};
const OTHERS = ["--c7"];

// What a legend says of a source, also of one that this page does not know.
export const sourceWords = (name) => SOURCES[name]?.words ?? name.replaceAll("-", " ").replaceAll("_", " ");

function rgb(text) {
  const hex = text.trim().replace("#", "");
  return [0, 2, 4].map((at) => parseInt(hex.slice(at, at + 2), 16));
}
const mixed = (a, b, share) => `rgb(${a.map((value, i) => Math.round(value * share + b[i] * (1 - share))).join(" ")})`;

// The colours of the page as it is now, light or dark: {paper, ink, soft, line, accent, panel, phases: [{queue, prefill,
// decode} by source]}.
export function palette(sources) {
  const style = getComputedStyle(document.documentElement);
  const value = (name) => style.getPropertyValue(name).trim();
  const paper = rgb(value("--paper")), ink = rgb(value("--ink"));
  const others = OTHERS.slice();
  const phases = sources.map((name) => {
    const colour = rgb(value(SOURCES[name]?.colour ?? others.shift() ?? "--c7"));
    return { queue: mixed(colour, paper, 0.28), prefill: mixed(colour, ink, 0.72), decode: mixed(colour, paper, 0.72), line: mixed(colour, paper, 0.6) };
  });
  const plain = Object.fromEntries(["paper", "ink", "soft", "line", "accent", "panel", "faint"].map((name) => [name, value(`--${name}`)]));
  return { ...plain, waiting: mixed(ink, paper, 0.6), cover: mixed(paper, paper, 1).replace(")", " / .78)"), phases };
}

// A pattern of slanted lines in a colour, for what waits.
export function hatched(context, colours, ratio) {
  return colours.phases.map(({ queue, line }) => {
    const size = Math.round(6 * ratio), tile = new OffscreenCanvas(size, size), draw = tile.getContext("2d");
    draw.fillStyle = queue;
    draw.fillRect(0, 0, size, size);
    draw.strokeStyle = line;
    draw.lineWidth = ratio * 1.2;
    draw.beginPath();
    for (const shift of [-size, 0, size]) { draw.moveTo(shift, size); draw.lineTo(shift + size, 0); }
    draw.stroke();
    return context.createPattern(tile, "repeat");
  });
}
