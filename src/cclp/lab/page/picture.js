// A frame on a canvas: regions, edges, arrows, points. It computes nothing of the method.

import { colours, shade, surface } from "./common.js";

const LONGEST = 34; // pixels of an arrow
const MARGIN = 44;

// Where the plane lies on the canvas; follows the points, at once or by and by.
export class View {
  constructor() {
    this.box = null;
  }

  follow(points, share = 1) {
    const [xs, ys] = [points.map((p) => p[0]), points.map((p) => p[1])];
    const wanted = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
    this.box = this.box ? this.box.map((v, i) => v + share * (wanted[i] - v)) : wanted;
  }

  fit(width, height) {
    const [left, right, low, high] = this.box;
    const room = (size) => Math.max(size - 2 * MARGIN, 10);
    this.scale = Math.min(
      room(width) / Math.max(right - left, 1e-3),
      room(height) / Math.max(high - low, 1e-3),
    );
    this.x = width / 2 - this.scale * (left + right) / 2;
    this.y = height / 2 + this.scale * (low + high) / 2;
  }

  toScreen([x, y]) {
    return [this.x + this.scale * x, this.y - this.scale * y];
  }

  toPlane([x, y]) {
    return [(x - this.x) / this.scale, (this.y - y) / this.scale];
  }
}

const SHAPES = [
  (c, x, y, r) => c.arc(x, y, r, 0, 2 * Math.PI),
  (c, x, y, r) => c.rect(x - 0.9 * r, y - 0.9 * r, 1.8 * r, 1.8 * r),
  (c, x, y, r) => polygon(c, [[x, y - 1.25 * r], [x + 1.15 * r, y + 0.8 * r], [x - 1.15 * r, y + 0.8 * r]]),
  (c, x, y, r) => polygon(c, [[x, y - 1.3 * r], [x + 1.3 * r, y], [x, y + 1.3 * r], [x - 1.3 * r, y]]),
];

function polygon(context, corners) {
  corners.forEach(([x, y], i) => (i ? context.lineTo(x, y) : context.moveTo(x, y)));
  context.closePath();
}

export function drawScene(canvas, view, labels, frame, show, chosen = null) {
  const ground = surface(canvas);
  if (!ground) return;
  const { context, width, height } = ground;
  view.fit(width, height);
  const places = frame.points.map((point) => view.toScreen(point));
  if (show.regions && frame.regions) drawRegions(context, view, frame.regions);
  const strength = chosen === null ? 0.85 : 0.25; // edges come first
  for (const name of ["entropy", "cclp", "supervised"]) {
    if (show[name] && frame.forces) drawArrows(context, places, frame.forces, name, strength);
  }
  if (chosen !== null && frame.edges?.length === places.length) {
    drawEdges(context, places, frame.edges, chosen);
  }
  drawPoints(context, places, labels, frame.posteriors, Math.min(width, height) < 420 ? 0.75 : 1);
  if (chosen !== null && chosen < places.length) drawRing(context, places[chosen]);
}

function drawRegions(context, view, regions) {
  regions.forEach((corners, c) => {
    if (!corners.length) return;
    context.beginPath();
    polygon(context, corners.map((corner) => view.toScreen(corner)));
    context.globalAlpha = 0.09;
    context.fillStyle = colours.classes[c];
    context.fill();
    context.globalAlpha = 0.55;
    context.strokeStyle = colours.soft;
    context.lineWidth = 1.2;
    context.stroke();
  });
  context.globalAlpha = 1;
}

function drawEdges(context, places, row, from) {
  const largest = Math.max(...row.filter((_, i) => i !== from), 1e-9);
  context.strokeStyle = colours.edge;
  row.forEach((share, to) => {
    if (to === from || share < 0.01 * largest) return;
    context.globalAlpha = 0.2 + 0.8 * share / largest;
    context.lineWidth = 0.8 + 4 * share / largest;
    context.beginPath();
    context.moveTo(...places[from]);
    context.lineTo(...places[to]);
    context.stroke();
  });
  context.globalAlpha = 1;
}

// Forces differ by orders of magnitude: half of them get half the longest arrow or more. Those of
// supervision, on few points, are measured by those of CCLP.
function drawArrows(context, places, forces, name, strength) {
  const sizes = forces[name === "entropy" ? name : "cclp"].map(([x, y]) => Math.hypot(x, y)).sort((a, b) => a - b);
  const middle = Math.max(sizes[sizes.length >> 1], 1e-5);
  context.strokeStyle = colours[name];
  context.lineWidth = name === "supervised" ? 2.4 : 1.3;
  context.globalAlpha = strength;
  const shafts = new Path2D(), heads = new Path2D();
  forces[name].forEach(([x, y], i) => {
    const size = Math.hypot(x, y);
    const length = LONGEST * size / (size + middle);
    if (length < 2) return;
    const [dx, dy] = [(x / size) * length, (-y / size) * length];
    const [tipX, tipY] = [places[i][0] + dx, places[i][1] + dy];
    shafts.moveTo(...places[i]);
    shafts.lineTo(tipX, tipY);
    heads.moveTo(tipX - 0.28 * dx + 0.16 * dy, tipY - 0.28 * dy - 0.16 * dx);
    heads.lineTo(tipX, tipY);
    heads.lineTo(tipX - 0.28 * dx - 0.16 * dy, tipY - 0.28 * dy + 0.16 * dx);
  });
  context.stroke(heads);
  context.setLineDash(name === "entropy" ? [4, 3] : []);
  context.stroke(shafts);
  context.setLineDash([]);
  context.globalAlpha = 1;
}

function drawPoints(context, places, labels, posteriors, size) {
  context.strokeStyle = colours.card;
  context.lineWidth = 1;
  places.forEach(([x, y], i) => {
    if (labels[i] >= 0) return;
    context.fillStyle = posteriors?.[i] ? shade(posteriors[i]) : colours.open;
    context.beginPath();
    context.arc(x, y, 5 * size, 0, 2 * Math.PI);
    context.fill();
    context.stroke();
  });
  context.lineWidth = 2.2;
  context.strokeStyle = colours.ink;
  places.forEach(([x, y], i) => {
    if (labels[i] < 0) return;
    context.fillStyle = colours.classes[labels[i]];
    context.beginPath();
    SHAPES[labels[i]](context, x, y, 9 * size);
    context.fill();
    context.stroke();
  });
}

function drawRing(context, [x, y]) {
  context.strokeStyle = colours.accent;
  context.lineWidth = 2;
  context.beginPath();
  context.arc(x, y, 14, 0, 2 * Math.PI);
  context.stroke();
}
