// The map of all samples: move, zoom, pick one, draw a lasso around many.

import { ask, byId, colours, element, surface } from "./common.js";
import { chip, mark, percent, shapeOf, classColour, tracePath } from "./marks.js";
import { Points, STEP, UNLABELED } from "./points.js";
import { nameOf, small } from "./sample.js";
import { bytes, change, isNews, say, store } from "./store.js";

const NEAR = 12, STILL = 4, EDGE = 24, CLOSER = 1.25, MOVE = 60; // pixels; factor of a key
const REST = 120; // milliseconds
const OUTLINED = 3000, NAMED = 30; // labeled samples, classes
const ARROWS = { ArrowLeft: [1, 0], ArrowRight: [-1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };

export class MapView {
  constructor(openSample) {
    this.openSample = openSample;
    this.points = new Points();
    this.canvas = byId("points");
    this.view = null;
    this.chosen = []; // samples that the next key labels
    this.picked = null;
    this.line = null; // of the lasso, on the plane
    this.lassoing = false;
    this.follow();
    new ResizeObserver(() => { if (!byId("map").hidden) this.draw(); }).observe(this.canvas);
  }

  async open() {
    byId("map").hidden = false;
    const start = !this.points.count;
    if (start) {
      this.points.place((await bytes("api/positions")).buffer);
      this.fit();
    }
    await this.learn();
  }

  close() {
    byId("map").hidden = true;
  }

  async learn() {
    const [believed, given] = await Promise.all([bytes("api/beliefs"), bytes("api/given")]);
    this.points.learn(believed, given);
    if (this.line) this.enclose(); // another tab may have labeled some of what is chosen
    this.middles = this.points.middles(store.state.classes);
    this.draw();
    if (this.picked !== null) this.showPicked(this.picked);
  }

  fit() {
    const { clientWidth: width, clientHeight: height } = this.canvas;
    const scale = Math.max(50, Math.min(width, height) - 2 * EDGE);
    this.view = { scale, x: (width - scale) / 2, y: (height - scale) / 2 };
    this.draw();
  }

  zoom(factor, [x, y] = [this.canvas.clientWidth / 2, this.canvas.clientHeight / 2]) {
    const { view } = this, scale = Math.min(200_000, Math.max(100, view.scale * factor)), by = scale / view.scale;
    this.view = { scale, x: x + (view.x - x) * by, y: y + (view.y - y) * by };
    this.move();
  }

  // Draw roughly now, and well when nothing has moved for a while.
  move() {
    this.moving = true;
    clearTimeout(this.resting);
    this.resting = setTimeout(() => { this.moving = false; this.draw(); }, REST);
    this.draw();
  }

  draw() {
    this.waiting ??= requestAnimationFrame(() => {
      this.waiting = null;
      if (!this.view || byId("map").hidden) return;
      const start = performance.now();
      this.points.draw(this.canvas, this.view, this.moving);
      this.drawOver();
      this.canvas.dataset.frames = Number(this.canvas.dataset.frames ?? 0) + 1;
      this.canvas.dataset.milliseconds = (performance.now() - start).toFixed(1);
    });
  }

  screen(i) {
    return [this.view.x + this.points.at[2 * i] * this.view.scale, this.view.y + this.points.at[2 * i + 1] * this.view.scale];
  }

  drawOver() {
    const ground = surface(byId("over"));
    if (!ground) return;
    const { context } = ground, { given, count } = this.points;
    Object.assign(context, { lineWidth: 1.4, strokeStyle: colours.ink });
    if (store.state.labeled <= OUTLINED) {
      const radius = 1 + STEP * this.points.sizeOfGiven(this.view.scale);
      for (let i = 0; i < count; i++) {
        if (given[i] >= 250) continue;
        const [x, y] = this.screen(i);
        context.fillStyle = classColour(given[i]);
        tracePath(context, shapeOf(given[i]), x, y, radius);
        context.fill();
        context.stroke();
      }
    }
    this.drawNames(context);
    this.drawChosen(context);
    const { labeled, total } = store.state;
    this.canvas.setAttribute("aria-label", `Map of ${total.toLocaleString("en")} samples, ${labeled} labeled. ${byId("selection").textContent}`);
  }

  drawNames(context) {
    const { classes } = store.state;
    if (classes.length > NAMED) return;
    Object.assign(context, { font: "650 14px system-ui, sans-serif", textAlign: "center", textBaseline: "middle",
      strokeStyle: colours.card, fillStyle: colours.ink, lineWidth: 4, lineJoin: "round" });
    this.middles?.forEach((at, c) => {
      if (!at || !classes[c]) return;
      const [x, y] = [this.view.x + at[0] * this.view.scale, this.view.y + at[1] * this.view.scale];
      const name = classes[c].name.length > 24 ? `${classes[c].name.slice(0, 23)}…` : classes[c].name;
      context.strokeText(name, x, y);
      context.fillText(name, x, y);
    });
  }

  drawChosen(context) {
    Object.assign(context, { strokeStyle: colours.ink, lineWidth: 2 });
    if (this.line) {
      context.beginPath();
      for (const [x, y] of this.line) context.lineTo(this.view.x + x * this.view.scale, this.view.y + y * this.view.scale);
      context.closePath();
      context.setLineDash([6, 4]);
      context.stroke();
      context.setLineDash([]);
      context.globalAlpha = 0.08;
      context.fillStyle = colours.ink;
      context.fill();
      context.globalAlpha = 1;
    }
    if (this.picked === null) return;
    const [x, y] = this.screen(this.picked);
    for (const [colour, width] of [[colours.card, 5], [colours.accent, 2.5]]) {
      Object.assign(context, { strokeStyle: colour, lineWidth: width });
      context.beginPath();
      context.arc(x, y, 11, 0, 2 * Math.PI);
      context.stroke();
    }
  }

  // -- pointer and keys --------------------------------------------------------------------------

  follow() {
    const { canvas } = this, at = (event) => [event.offsetX, event.offsetY];
    let down = null;
    canvas.addEventListener("pointerdown", (event) => {
      if (event.button !== 0 || !this.view) return;
      down = { at: at(event), view: this.view, moved: false, lasso: this.lassoing || event.shiftKey };
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", (event) => {
      const here = at(event);
      if (!down) return;
      if (!down.moved && Math.hypot(here[0] - down.at[0], here[1] - down.at[1]) > STILL) {
        down.moved = true;
        if (down.lasso) this.choose([], [this.plane(down.at)]);
      }
      if (!down.moved) return;
      if (down.lasso) this.line.push(this.plane(here));
      else this.view = { ...down.view, x: down.view.x + here[0] - down.at[0], y: down.view.y + here[1] - down.at[1] };
      if (down.lasso) this.drawOver();
      else this.move();
    });
    canvas.addEventListener("pointerup", (event) => {
      if (down?.moved && down.lasso) this.enclose();
      else if (down && !down.moved) this.pick(this.points.nearest(this.view, at(event), NEAR));
      down = null;
    });
    canvas.addEventListener("pointercancel", () => { down = null; });
    canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      if (this.view) this.zoom(Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.002)), at(event));
    }, { passive: false });
    byId("zoom-in").addEventListener("click", () => this.zoom(CLOSER));
    byId("zoom-out").addEventListener("click", () => this.zoom(1 / CLOSER));
    byId("fit").addEventListener("click", () => this.fit());
    for (const id of ["pan", "lasso"]) byId(id).addEventListener("click", () => this.setLasso(id === "lasso"));
  }

  setLasso(on) {
    this.lassoing = on;
    byId("lasso").setAttribute("aria-pressed", String(on));
    byId("pan").setAttribute("aria-pressed", String(!on));
    this.canvas.classList.toggle("lassoing", on);
  }

  plane([x, y]) {
    return [(x - this.view.x) / this.view.scale, (y - this.view.y) / this.view.scale];
  }

  choose(samples, line = null) {
    this.chosen = samples;
    this.line = line;
    this.picked = null;
    byId("picked").hidden = true;
    byId("selection").textContent = "";
    byId("map-note").hidden = false;
  }

  enclose() {
    const all = this.points.inside(this.line), free = all.filter((i) => this.points.given[i] === UNLABELED);
    this.choose(free, this.line);
    const others = all.length - free.length;
    byId("selection").textContent = free.length
      ? `${free.length.toLocaleString("en")} samples: press the key of their class${others ? ` (${others} answered before stay as they are)` : ""}. Esc: none.`
      : all.length ? "All in there have an answer already: they stay as they are." : "Nothing is in there.";
    byId("map-note").hidden = true;
    this.draw();
  }

  pick(sample) {
    this.choose(sample === null ? [] : [sample]);
    this.picked = sample;
    this.draw();
    if (sample !== null) this.showPicked(sample);
  }

  async showPicked(sample) {
    const [question, info] = await Promise.all([ask(`api/question?sample=${sample}`), ask(`api/sample?sample=${sample}`)]);
    if (this.picked !== sample) return;
    const { classes, labeled } = store.state, open = element("button", "Large ⏎"), parts = [small(sample)];
    open.type = "button";
    open.addEventListener("click", () => this.openSample(sample));
    parts.push(element("b", nameOf(info), "file"));
    if (info.given !== null) parts.push(chip(store.state, info.given));
    else if (labeled) {
      const best = classes.map((cls) => [cls, question.probabilities[cls.id] ?? 0]).sort((a, b) => b[1] - a[1]).slice(0, 2);
      for (const [cls, probability] of best) {
        const line = element("span", undefined, "chip");
        line.append(element("kbd", cls.key || "n"), mark(cls.id), `${cls.name} ${percent(probability)}`);
        parts.push(line);
      }
    }
    byId("picked").replaceChildren(...parts, open);
    byId("picked").hidden = false;
  }

  key(event) {
    const by = ARROWS[event.key];
    if (by) this.view = { ...this.view, x: this.view.x + MOVE * by[0], y: this.view.y + MOVE * by[1] };
    else if (event.key === "+" || event.key === "=") this.zoom(CLOSER);
    else if (event.key === "-") this.zoom(1 / CLOSER);
    else if (event.key === "Home") this.fit();
    else if (event.key === "Enter" && this.picked !== null) this.openSample(this.picked);
    else if (event.key === "Enter") this.pick(this.points.nearest(this.view, [this.canvas.clientWidth / 2, this.canvas.clientHeight / 2], 1e4));
    else if (event.key === "Escape" && (this.chosen.length || this.line)) this.choose([]);
    else return false;
    this.move();
    return true;
  }

  async answer(value, what) {
    if (!this.chosen.length) {
      say.message("Click a sample, or draw a lasso around many (Shift and drag), then press a key.");
      return null;
    }
    const samples = this.chosen, alone = this.picked !== null;
    if (!await change("api/decide", { samples, class: value }, what)) {
      await this.learn();
      return null;
    }
    if (alone) this.showPicked(samples[0]);
    else this.choose([]);
    await this.learn();
    return samples;
  }

  async onState(state, before) {
    if (byId("map").hidden || !before || store.busy) return;
    if (isNews(state, before)) await this.learn();
  }
}
