// Elements, shapes and figures: what every part of a page is made of.

const SVG = "http://www.w3.org/2000/svg";

// An element; attributes that are null or false are left out, functions listen to the event they are named after.
export function element(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") node.addEventListener(name.slice(2), value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

export function shape(tag, attributes, parent, text) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  if (text !== undefined) node.textContent = text;
  if (parent) parent.append(node);
  return node;
}

// A number to three significant digits, thousands grouped; a dash where there is none.
export function number(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "-";
  const size = Math.abs(value);
  if (Number.isInteger(value) || size >= 100) return Math.round(value).toLocaleString("en-US");
  if (size < 0.001) return value.toExponential(1);
  return value.toFixed(Math.max(0, 2 - Math.floor(Math.log10(size))));
}

// A tick of an axis: no more digits than it needs.
export const tickText = (value) => value.toLocaleString("en-US", { maximumSignificantDigits: 4 });

export function percent(share) {
  return share === null || share === undefined ? "-" : `${number(Number((100 * share).toPrecision(3)))}%`;
}

// Words by which numbers sort as numbers and the rest by alphabet.
export function naturally(a, b) {
  const [x, y] = [Number(a), Number(b)];
  return Number.isNaN(x) || Number.isNaN(y) ? String(a).localeCompare(String(b), "en") : x - y;
}

export function fillSelect(select, options, value) {
  select.replaceChildren(...options.map(([key, text]) => element("option", { value: key }, text)));
  select.value = String(value);
}

// Redraw what is inside `root`, and give the focus back to the element with the same data-key.
export function keepingFocus(root, redraw) {
  const active = document.activeElement;
  const key = active && root.contains(active) ? active.dataset.key : undefined;
  redraw();
  if (key !== undefined) root.querySelector(`[data-key="${CSS.escape(key)}"]`)?.focus({ preventScroll: true });
}

export function scrollTable(head, body, attributes = {}) {
  const table = element("table", attributes, element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...body));
  return element("div", { class: "scroll" }, table);
}
