// Many points on a canvas: each is a small stamp that is copied into the pixels of one image.
// A stamp is a list of places and opacities; 70,000 points are some milliseconds.

import { colours } from "./common.js";
import { COLOURS, shapeOf, tracePath } from "./marks.js";

export const STEP = 0.5, SIZES = 28; // stamps of radius 0.5, 1.0, …, in pixels of the screen
const PLAIN = 2.6; // pixels: smaller points are discs, as no shape can be seen
const NOTHING = 255;
export const UNLABELED = 255;

const stamps = new Map();

function stamp(shape, size, ratio) {
  const key = `${shape} ${size} ${ratio}`;
  if (!stamps.has(key)) stamps.set(key, makeStamp(shape, size * STEP * ratio));
  return stamps.get(key);
}

function makeStamp(shape, radius) {
  const half = Math.ceil(radius * 1.3) + 1, side = 2 * half + 1;
  const canvas = new OffscreenCanvas(side, side), context = canvas.getContext("2d", { willReadFrequently: true });
  tracePath(context, shape, half + 0.5, half + 0.5, radius);
  context.fill();
  const { data } = context.getImageData(0, 0, side, side), found = [];
  for (let i = 0; i < side * side; i++) {
    if (data[4 * i + 3] > 8) found.push([(i % side) - half, Math.floor(i / side) - half, data[4 * i + 3]]);
  }
  const solid = found.filter((p) => p[2] > 110);
  return { half, solid: new Map(), sx: solid.map((p) => p[0]), sy: solid.map((p) => p[1]), dx: Int16Array.from(found, (p) => p[0]), dy: Int16Array.from(found, (p) => p[1]), opacity: Uint8Array.from(found, (p) => p[2]) };
}

const probe = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });

function toPixel(colour) {
  probe.clearRect(0, 0, 1, 1);
  probe.fillStyle = colour;
  probe.fillRect(0, 0, 1, 1);
  return new Uint32Array(probe.getImageData(0, 0, 1, 1).data.buffer)[0];
}

export class Points {
  constructor() {
    this.count = 0;
  }

  place(buffer) {
    this.at = new Float32Array(buffer);
    this.count = this.at.length / 2;
    this.believed = new Uint8Array(2 * this.count).fill(NOTHING);
    this.given = new Uint8Array(this.count).fill(UNLABELED);
    this.order = Uint32Array.from({ length: this.count }, (_, i) => i);
  }

  // What is believed and given; points that are less certain are drawn later, so that they are seen.
  learn(believed, given) {
    if (given.length !== this.count) return;
    this.believed = believed;
    this.given = given;
    const bins = Array.from({ length: 257 }, () => 0);
    const rank = (i) => (given[i] < 250 ? 256 : 255 - (believed[2 * i] === NOTHING ? 255 : believed[2 * i + 1]));
    for (let i = 0; i < this.count; i++) bins[rank(i)]++;
    for (let r = 0, sum = 0; r < 257; r++) [bins[r], sum] = [sum, sum + bins[r]];
    for (let i = 0; i < this.count; i++) this.order[bins[rank(i)]++] = i;
  }

  classOf(i) {
    const { given, believed } = this;
    return given[i] < 250 ? given[i] : given[i] === UNLABELED && believed[2 * i] !== NOTHING ? believed[2 * i] : null;
  }

  // view: {x, y, scale}, the place of the plane's origin on the screen, and pixels a unit.
  // Without smooth edges while it moves.
  draw(canvas, view, moving) {
    const ratio = devicePixelRatio || 1, width = Math.round(canvas.clientWidth * ratio), height = Math.round(canvas.clientHeight * ratio);
    if (!width || !height) return;
    if (canvas.width !== width || canvas.height !== height || !this.image) {
      [canvas.width, canvas.height] = [width, height];
      this.context = canvas.getContext("2d");
      this.image = this.context.createImageData(width, height);
      this.pixels = new Uint32Array(this.image.data.buffer);
    }
    this.pixels.fill(toPixel(colours.card));
    const palette = colours.classes.map(toPixel), open = toPixel(colours.open);
    const { at, order, count, believed, given } = this;
    // radii by certainty, and stamps by shape and size: looked up, not computed, for each point
    const sizes = new Uint8Array(256), unknown = this.sizeOf(0.4, view.scale), own = this.sizeOfGiven(view.scale);
    for (let c = 0; c < 256; c++) sizes[c] = this.sizeOf(0.4 + (0.6 * c) / 255, view.scale);
    const found = Array.from({ length: 7 }, (_, shape) => Array.from({ length: SIZES + 1 }, (_, size) =>
      (size ? stamp(size * STEP < PLAIN ? 0 : shape, size, ratio) : null)));
    const press = moving ? "pressSolid" : "press";
    const scale = view.scale * ratio, x0 = view.x * ratio, y0 = view.y * ratio;
    for (let k = 0; k < count; k++) {
      const i = order[k];
      const x = Math.round(x0 + at[2 * i] * scale), y = Math.round(y0 + at[2 * i + 1] * scale);
      if (x < -20 || y < -20 || x > width + 20 || y > height + 20) continue;
      const isGiven = given[i] < 250;
      const of = isGiven ? given[i] : given[i] === UNLABELED ? believed[2 * i] : NOTHING;
      const size = isGiven ? own : of === NOTHING ? unknown : sizes[believed[2 * i + 1]];
      const shape = of === NOTHING ? 0 : shapeOf(of);
      this[press](found[shape][size], x, y, of === NOTHING ? open : palette[of % COLOURS], width, height);
    }
    this.context.putImageData(this.image, 0, 0);
  }

  sizeOf(part, scale) {
    const most = Math.min(4.2, Math.max(1.6, 150 / Math.sqrt(this.count))) * Math.min(3, Math.max(1, Math.sqrt(scale / 700)));
    return Math.min(SIZES, Math.max(1, Math.round((most * part) / STEP)));
  }

  sizeOfGiven(scale) {
    return Math.min(SIZES, this.sizeOf(1, scale) + 3);
  }

  pressSolid(stamp, x, y, colour, width, height) {
    const { half, solid, sx, sy } = stamp;
    if (x < half || y < half || x >= width - half || y >= height - half) return this.press(stamp, x, y, colour, width, height);
    let places = solid.get(width);
    if (!places) solid.set(width, places = Int32Array.from(sx, (dx, p) => sy[p] * width + dx));
    const { pixels } = this, start = y * width + x;
    for (let p = 0; p < places.length; p++) pixels[start + places[p]] = colour;
  }

  press({ half, dx, dy, opacity }, x, y, colour, width, height) {
    const { pixels } = this, inside = x >= half && y >= half && x < width - half && y < height - half;
    const r = colour & 255, g = (colour >> 8) & 255, b = (colour >> 16) & 255;
    for (let p = 0; p < dx.length; p++) {
      const px = x + dx[p], py = y + dy[p];
      if (!inside && (px < 0 || py < 0 || px >= width || py >= height)) continue;
      const at = py * width + px, a = opacity[p];
      if (a > 247) pixels[at] = colour;
      else {
        const old = pixels[at], rest = 255 - a;
        pixels[at] = (0xff000000 | ((((old >> 16) & 255) * rest + b * a) / 255) << 16
          | ((((old >> 8) & 255) * rest + g * a) / 255) << 8 | (((old & 255) * rest + r * a) / 255)) >>> 0;
      }
    }
  }

  nearest(view, [x, y], within) {
    let best = null, least = within * within;
    for (let i = 0; i < this.count; i++) {
      const dx = view.x + this.at[2 * i] * view.scale - x, dy = view.y + this.at[2 * i + 1] * view.scale - y;
      const distance = dx * dx + dy * dy;
      if (distance < least) [best, least] = [i, distance];
    }
    return best;
  }

  // Points inside a line on the plane: [[x, y], …].
  inside(line) {
    const xs = line.map((p) => p[0]), ys = line.map((p) => p[1]), found = [];
    const [left, right, top, bottom] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
    for (let i = 0; i < this.count; i++) {
      const x = this.at[2 * i], y = this.at[2 * i + 1];
      if (x < left || x > right || y < top || y > bottom) continue;
      let within = false;
      for (let a = 0, b = line.length - 1; a < line.length; b = a++) {
        if ((ys[a] > y) !== (ys[b] > y) && x < ((xs[b] - xs[a]) * (y - ys[a])) / (ys[b] - ys[a]) + xs[a]) within = !within;
      }
      if (within) found.push(i);
    }
    return found;
  }

  // The middle of what is believed of each class, for its name.
  middles(classes) {
    return classes.map(({ id }) => {
      const xs = [], ys = [];
      for (let i = 0; i < this.count; i++) {
        if (this.classOf(i) === id) { xs.push(this.at[2 * i]); ys.push(this.at[2 * i + 1]); }
      }
      const middle = (values) => Float32Array.from(values).sort()[values.length >> 1];
      if (!xs.length) return null;
      const [mx, my] = [middle(xs), middle(ys)];
      let [best, least] = [0, Infinity]; // a median may lie where nothing is
      for (let i = 0; i < xs.length; i++) {
        const distance = (xs[i] - mx) ** 2 + (ys[i] - my) ** 2;
        if (distance < least) [best, least] = [i, distance];
      }
      return [xs[best], ys[best]];
    });
  }
}
