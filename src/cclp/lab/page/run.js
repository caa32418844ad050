// A training run: its curves, and its embedding over time. Polls until the run is finished.

import { ask, byId, colours, element, followTheme, surface } from "./common.js";
import { drawChart, short } from "./chart.js";

const PLANE = 1000, NEAR = 12, EVERY = 2000, NAMED = 25; // of the server; pixels; milliseconds; classes
const canvas = document.querySelector(".panel canvas"), slider = byId("time");
let run = null, chosen = null, near = [], playing = false, asked = 0;

function colour(c) {
  return c < 0 ? colours.open : run.colours[document.documentElement.dataset.theme][c];
}

async function poll() {
  try {
    const found = await ask(`run/summary?seen=${run?.version ?? ""}`);
    if (found.version !== run?.version) show(found);
    byId("message").textContent = "";
  } catch (error) {
    byId("message").textContent = error.message;
  }
  if (!run?.finished) setTimeout(poll, EVERY);
}

function show(found) {
  const atEnd = Number(slider.value) >= Number(slider.max);
  const chosenIndex = chosen === null ? null : run.embedding.index[chosen];
  run = found;
  byId("what").textContent = run.what;
  byId("outcome").textContent = run.finished ? run.outcome : `${run.outcome}. Now at step ${run.step} of ${run.max_steps}.`;
  byId("how").textContent = run.embedding?.how ?? "No embedding is recorded yet: the first comes with the first evaluation.";
  slider.max = Math.max(0, (run.embedding?.steps.length ?? 1) - 1);
  if (atEnd) slider.value = slider.max;
  chosen = chosenIndex === null ? null : run.embedding.index.indexOf(chosenIndex);
  showClasses();
  showWarnings();
  makeCharts();
  draw();
}

function showClasses() {
  byId("classes").replaceChildren(...run.classes.map((name, c) => {
    const item = element("span", undefined, "keys"), dot = element("i");
    dot.style.setProperty("--key", colour(c));
    item.append(dot, name);
    return item;
  }));
}

function showWarnings() {
  byId("warnings").hidden = !run.warnings.length;
  byId("warnings").replaceChildren(...run.warnings.map(({ message }) => element("p", message)));
}

function makeCharts() {
  byId("charts").replaceChildren(...run.charts.map(({ title, meaning }) => {
    const figure = element("figure"), caption = element("figcaption", title), chart = element("canvas");
    figure.title = meaning;
    chart.setAttribute("role", "img");
    figure.append(caption, chart);
    return figure;
  }));
}

const frame = () => Number(slider.value);
const place = (i) => {
  const size = Math.min(canvas.clientWidth, canvas.clientHeight), [x, y] = run.embedding.places[frame()][i];
  const left = (canvas.clientWidth - size) / 2, top = (canvas.clientHeight - size) / 2;
  return [left + (x / PLANE) * size, top + (y / PLANE) * size];
};

function draw() {
  if (!run) return;
  drawEmbedding();
  const names = ["accent", "cclp", "entropy", "soft"];
  [...byId("charts").querySelectorAll("canvas")].forEach((chart, k) => {
    const { title, lines, limit, log } = run.charts[k];
    const step = run.embedding?.steps[frame()];
    drawChart(chart, {
      label: title, log, low: log ? undefined : 0, cursor: step, named: true,
      lines: lines.map((line, i) => ({ ...line, colour: colours[names[i % names.length]] })),
      marks: limit === null ? [] : [{ value: limit, name: "limit" }],
    });
  });
}

function drawEmbedding() {
  const ground = surface(canvas);
  if (!ground || !run.embedding) return;
  const { context } = ground, { y, labeled, steps } = run.embedding;
  const predicted = run.embedding.predicted[frame()];
  const shown = byId("by").value === "y" ? y : predicted;
  const places = y.map((_, i) => place(i));
  let [wrong, known] = [0, 0];
  if (chosen !== null) drawNear(context, places);
  for (const marked of [false, true]) {
    places.forEach(([x, top], i) => {
      const bad = y[i] >= 0 && predicted[i] !== y[i];
      if (labeled[i] !== marked) return;
      if (y[i] >= 0 && !marked) [wrong, known] = [wrong + bad, known + 1];
      drawSample(context, x, top, colour(shown[i]), marked, bad);
    });
  }
  nameClasses(context, places, predicted);
  if (chosen !== null) ring(context, places[chosen], 11);
  byId("step-name").textContent = `Step ${steps[frame()].toLocaleString("en")}`;
  byId("tally").textContent = known ? `${wrong} of ${known} unlabeled points predicted wrong` : "";
  slider.setAttribute("aria-valuetext", `step ${steps[frame()]}`);
  canvas.setAttribute("aria-label", `Embedding of ${y.length} training samples at step ${steps[frame()]}`);
}

// A dot; a cross where the prediction is wrong; a diamond where the label is known to the training.
function drawSample(context, x, y, fill, marked, bad) {
  Object.assign(context, { fillStyle: fill, strokeStyle: fill, lineWidth: 1.8, globalAlpha: 0.85 });
  context.beginPath();
  if (marked) {
    context.globalAlpha = 1;
    context.strokeStyle = bad ? colours.cclp : colours.ink;
    [[0, -6], [6, 0], [0, 6], [-6, 0]].forEach(([dx, dy]) => context.lineTo(x + dx, y + dy));
    context.closePath();
    context.fill();
    context.stroke();
  } else if (bad) {
    for (const side of [-1, 1]) {
      context.moveTo(x - 4, y - side * 4);
      context.lineTo(x + 4, y + side * 4);
    }
    context.stroke();
  } else {
    context.arc(x, y, 3.4, 0, 2 * Math.PI);
    context.fill();
  }
  context.globalAlpha = 1;
}

// Each class by name at the middle of what is predicted as it: colours alone tell few apart.
function nameClasses(context, places, predicted) {
  if (run.classes.length > NAMED) return;
  const middle = (values) => values.sort((a, b) => a - b)[values.length >> 1];
  Object.assign(context, { font: "650 15px system-ui, sans-serif", textAlign: "center",
    textBaseline: "middle", strokeStyle: colours.card, fillStyle: colours.ink, lineWidth: 4 });
  run.classes.forEach((name, c) => {
    const own = places.filter((_, i) => predicted[i] === c);
    if (!own.length) return;
    const at = [0, 1].map((axis) => middle(own.map((p) => p[axis])));
    context.strokeText(name, ...at);
    context.fillText(name, ...at);
  });
}

function drawNear(context, places) {
  Object.assign(context, { strokeStyle: colours.edge, lineWidth: 1.4, globalAlpha: 0.7 });
  context.beginPath();
  for (const i of near) {
    context.moveTo(...places[chosen]);
    context.lineTo(...places[i]);
  }
  context.stroke();
  context.globalAlpha = 1;
  for (const i of near) ring(context, places[i], 7);
}

function ring(context, [x, y], size) {
  Object.assign(context, { strokeStyle: colours.accent, lineWidth: 2 });
  context.beginPath();
  context.arc(x, y, size, 0, 2 * Math.PI);
  context.stroke();
}

async function choose(index) {
  if (index === null || !run?.embedding) return;
  chosen = index;
  const mine = ++asked, step = run.embedding.steps[frame()];
  try {
    const found = await ask(`run/point?step=${step}&point=${index}`);
    if (mine !== asked) return; // the pointer is elsewhere by now
    near = found.neighbours;
    showPoint(found);
    draw();
  } catch (error) {
    byId("message").textContent = error.message;
  }
}

function showPoint({ neighbours, distances, images, no_images }) {
  const { y, index, labeled, predicted } = run.embedding, now = predicted[frame()];
  const truth = y[chosen] < 0 ? "unknown" : run.classes[y[chosen]];
  byId("point-title").textContent =
    `Sample ${index[chosen]}${labeled[chosen] ? ", labeled" : ""}: class ${truth}, predicted ${run.classes[now[chosen]]}`;
  byId("near").replaceChildren(...[chosen, ...neighbours].map((i, k) => {
    const item = element("li"), dot = element("i");
    if (images) {
      const image = element("img");
      Object.assign(image, { src: images[k], alt: `sample ${index[i]}` });
      item.append(image);
    }
    dot.style.background = colour(y[i]);
    item.append(dot, `${y[i] < 0 ? "?" : run.classes[y[i]]}${k ? ` ${short(distances[k - 1])}` : ""}`);
    return item;
  }));
  byId("point-note").textContent = no_images || "Its nearest by embedding, with their distances.";
}

function nearest([x, y]) {
  let [best, least] = [null, NEAR];
  run?.embedding?.y.forEach((_, i) => {
    const [px, py] = place(i), distance = Math.hypot(px - x, py - y);
    if (distance < least) [best, least] = [i, distance];
  });
  return best;
}

function move(to) {
  slider.value = to;
  near = [];
  draw();
  if (chosen !== null) choose(chosen);
}

async function play() {
  playing = !playing;
  byId("play").textContent = playing ? "❚❚ Pause" : "▶ Play";
  if (playing && frame() >= Number(slider.max)) move(0);
  while (playing && frame() < Number(slider.max)) {
    await new Promise((done) => setTimeout(done, 350));
    if (playing) move(frame() + 1);
  }
  playing = false;
  byId("play").textContent = "▶ Play";
}

canvas.addEventListener("pointermove", (event) => {
  const index = nearest([event.offsetX, event.offsetY]);
  if (index !== chosen) choose(index);
});
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.target.closest("input, select, button, a")) return;
  const count = run?.embedding?.y.length ?? 0;
  const by = { ".": 1, ",": -1 }[event.key];
  if (by && count) choose(((chosen ?? -by) + by + count) % count);
  else if (event.key === " ") play();
  else if (event.key === "ArrowLeft" || event.key === "ArrowRight") move(frame() + (event.key === "ArrowLeft" ? -1 : 1));
  else return;
  event.preventDefault();
});
slider.addEventListener("input", () => { playing = false; move(slider.value); });
byId("by").addEventListener("change", draw);
byId("play").addEventListener("click", play);
new ResizeObserver(draw).observe(document.querySelector("main"));
followTheme(byId("theme"), () => { if (run) { showClasses(); draw(); } });
poll();
