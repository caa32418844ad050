// One picture: its scene, the server's last frame of it, and its history.

import { ask, colours } from "./common.js";
import { View, drawScene } from "./picture.js";

const LONGEST = 600; // history: beyond, every other moment is forgotten
const DIAGNOSED = 10; // every so many steps while playing
const TERMS = ["supervised", "cclp", "entropy"];

export class Panel {
  constructor(figure) {
    this.figure = figure;
    this.canvas = figure.querySelector("canvas");
    this.view = new View();
    this.chosen = null; // the point whose edges are shown
    this.held = null; // the point that is being dragged: the server does not move it
    this.edits = 0; // an answer to a question from before an edit is thrown away
  }

  begin(scene) {
    this.scene = structuredClone(scene);
    this.next = this.frame = this.chosen = this.held = null;
    this.edits++;
    this.iteration = 0;
    this.history = [];
    this.view = new View();
  }

  // Ask for the scene as it stands (0), or so many steps later; in vain if it is edited meanwhile.
  async look(settings, steps = 0) {
    const edits = this.edits;
    const moved = steps && this.next ? { ...this.scene, ...this.next } : this.scene;
    const skip = Math.max(0, steps - (this.next ? 1 : 0));
    const diagnose = steps === 0 || this.iteration % DIAGNOSED === 0;
    const frame = await ask("frame", { scene: { ...moved, settings }, skip, edges_of: this.chosen, diagnose });
    if (edits !== this.edits) return;
    frame.warnings ??= this.frame?.warnings ?? [];
    this.iteration += steps;
    this.frame = frame;
    this.next = frame.next;
    Object.assign(this.scene, { points: frame.points, classifier: frame.classifier });
    if (this.held) this.move(this.held.index, this.held.place);
    this.remember(frame);
  }

  remember(frame) {
    if (this.history.at(-1)?.iteration === this.iteration) this.history.pop();
    this.history.push({ iteration: this.iteration, ...frame.losses, ideal: frame.landmarks.ideal,
      masses: frame.masses, accuracy: frame.accuracy });
    if (this.history.length > LONGEST) this.history = this.history.filter((_, i) => i % 2 === 0);
  }

  line(of, colour, dash, width) {
    return { name: of.name, colour, dash, width,
      x: this.history.map((h) => h.iteration), y: this.history.map((h) => of.value(h) ?? null) };
  }

  lossLines(dash) {
    return [
      ...TERMS.map((term) => this.line({ name: term, value: (h) => h[term] }, colours[term], dash)),
      this.line({ name: "least for these labels", value: (h) => h.ideal }, colours.cclp, [1, 3], 1.4),
    ];
  }

  massLines(dash) {
    return this.frame.masses.map((_, c) =>
      this.line({ name: `class ${c + 1}`, value: (h) => h.masses[c] }, colours.classes[c], dash));
  }

  accuracyLine(dash) {
    const of = { name: "accuracy, %", value: (h) => h.accuracy === null ? null : 100 * h.accuracy };
    return this.line(of, colours.accent, dash);
  }

  // Edits hold for the points as they stand and as they will after the step that is known already.
  move(index, place) {
    this.scene.points[index] = place;
    if (this.next) this.next.points[index] = place;
  }

  add(place) {
    this.edits++;
    for (const part of [this.scene, this.next]) part?.points.push(place);
    this.scene.truth.push(-1);
    this.scene.labels.push(-1);
  }

  remove(index) {
    this.edits++;
    for (const part of [this.scene, this.next]) part?.points.splice(index, 1);
    this.scene.truth.splice(index, 1);
    this.scene.labels.splice(index, 1);
    this.chosen = this.held = null;
  }

  label(index, value) {
    this.edits++;
    this.scene.labels[index] = value;
  }

  nearest([x, y], within) {
    let [best, least] = [null, within];
    this.scene.points.forEach((point, i) => {
      const [px, py] = this.view.toScreen(point);
      const distance = Math.hypot(px - x, py - y);
      if (distance < least) [best, least] = [i, distance];
    });
    return best;
  }

  draw(show, follow) {
    if (this.figure.hidden || !this.scene) return;
    if (!this.held) this.view.follow(this.scene.points, follow);
    // of a scene that the server has not seen yet, only the points
    const whole = this.frame?.posteriors.length === this.scene.points.length;
    const frame = { ...(whole ? this.frame : {}), points: this.scene.points };
    drawScene(this.canvas, this.view, this.scene.labels, frame, show, this.chosen);
  }
}
