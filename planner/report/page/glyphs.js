// The signs of the plots: a form and a colour each, so that neither is needed alone.

import { element, shape } from "./dom.js";

export const GLYPHS = [
  "M-5,0a5,5 0 1,0 10,0a5,5 0 1,0 -10,0z", "M-4.5,-4.5h9v9h-9z", "M0,-5.6L5.4,4.4H-5.4z", "M0,-6.2L6.2,0L0,6.2L-6.2,0z",
  "M0,5.6L5.4,-4.4H-5.4z", "M-2,-5.5h4v3.5h3.5v4h-3.5v3.5h-4v-3.5h-3.5v-4h3.5z", "M-5.5,0L-2.75,-4.8H2.75L5.5,0L2.75,4.8H-2.75z",
  "M-5,-5L0,-1.8L5,-5L1.8,0L5,5L0,1.8L-5,5L-1.8,0z",
];
export const STAR = "M0,-9.5L2.4,-3.2L9,-2.9L3.8,1.2L5.6,7.7L0,4L-5.6,7.7L-3.8,1.2L-9,-2.9L-2.4,-3.2z";
export const CROSS = "M-3.5,-3.5L3.5,3.5M-3.5,3.5L3.5,-3.5";

export function legendEntry(d, style, words) {
  const icon = shape("svg", { viewBox: "-8 -8 16 16", "aria-hidden": "true" });
  Object.assign(shape("path", { d }, icon).style, style);
  return element("span", {}, icon, ` ${words}`);
}
