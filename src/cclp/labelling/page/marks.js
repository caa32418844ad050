// What a class looks like: a colour, a shape and its key. Colour alone tells few apart.

import { colours, element } from "./common.js";

export const COLOURS = 10;
const SIDES = [0, 4, 3, -4, -3, 6, 5]; // as many as are coprime; 0: a disc, negative: turned
const SVG = "http://www.w3.org/2000/svg";

export const classColour = (id) => (id === null || id === undefined ? colours.open : colours.classes[id % COLOURS]);
export const shapeOf = (id) => id % SIDES.length;

// Corners of a shape of radius 1, null for a disc.
export function corners(shape) {
  const sides = SIDES[shape], count = Math.abs(sides);
  if (!count) return null;
  const turn = { 4: Math.PI / 4, 3: -Math.PI / 2, "-4": 0, "-3": Math.PI / 2, 6: 0, 5: -Math.PI / 2 }[sides];
  const size = count === 3 ? 1.25 : count === 4 ? 1.15 : 1.05; // of about the same area
  return Array.from({ length: count }, (_, i) => {
    const angle = turn + (2 * Math.PI * i) / count;
    return [size * Math.cos(angle), size * Math.sin(angle)];
  });
}

export function tracePath(context, shape, x, y, radius) {
  const points = corners(shape);
  context.beginPath();
  if (!points) context.arc(x, y, radius, 0, 2 * Math.PI);
  else for (const [cx, cy] of points) context.lineTo(x + radius * cx, y + radius * cy);
  context.closePath();
}

export function mark(id) {
  const svg = document.createElementNS(SVG, "svg"), points = corners(shapeOf(id));
  const shape = document.createElementNS(SVG, points ? "polygon" : "circle");
  svg.setAttribute("viewBox", "-1.4 -1.4 2.8 2.8");
  svg.setAttribute("class", `mark k${id % COLOURS}`);
  svg.setAttribute("aria-hidden", "true");
  if (points) shape.setAttribute("points", points.map((p) => p.join()).join(" "));
  else shape.setAttribute("r", "1.1");
  svg.append(shape);
  return svg;
}

export const NAMES = { not_sure: "not sure", none: "none of these" };

// An answer in words, with the mark of its class.
export function chip(state, value) {
  const made = element("span", undefined, "chip"), found = state.classes.find((c) => c.id === value);
  if (found) made.append(mark(found.id), element("span", found.name));
  else made.append(element("span", NAMES[value] ?? "no label", "soft"));
  return made;
}

export const named = (state, value) => state.classes.find((c) => c.id === value)?.name ?? NAMES[value] ?? "no label";

export function percent(value) {
  if (value === null || value === undefined) return "";
  const hundred = 100 * value, coarse = hundred === 0 || hundred >= 99.95 || (hundred >= 9.95 && hundred < 99);
  return `${hundred.toFixed(coarse ? 0 : 1)}\u00a0%`;
}
