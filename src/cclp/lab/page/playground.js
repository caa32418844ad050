// The playground: settings, play and pause, charts. All numbers come from the server.

import { ask, byId, element, followTheme } from "./common.js";
import { drawChart } from "./chart.js";
import { followKeys, followPointer } from "./hands.js";
import { fromLink, toLink } from "./link.js";
import { Panel } from "./panel.js";
import { savePicture } from "./save.js";
import { fromSlider, makeLogarithmic, toSlider } from "./slider.js";

const NOISE = { moons: 0.05, circles: 0.02, ambiguous: 0.03, blobs: 0.25 };
const CHARTED = 4; // charts are drawn every so many frames while playing
const MOST = 500, LAST = 5000; // points; steps, then it pauses
const WARNINGS = { // in short, by code; the whole message is the tooltip
  collapsed: "One class may be taking over the batch.",
  isolated: "Points reach little but themselves.",
  uncertain: "Propagated labels are almost uniform.",
  unreachable: "Some points hardly ever reach a label.",
};
const COMPARED = {
  none: [{}],
  steps: [{ method: "cclp", chain_steps: 1 }, { method: "cclp", chain_steps: 10 }],
  method: [{ method: "cclp" }, { method: "entropy" }],
};

const form = document.querySelector(".controls");
const panels = [...document.querySelectorAll(".panel")].map((figure) => new Panel(figure));
const situation = {
  layout: { name: "moons", points: 200, noise: NOISE.moons, seed: 0 },
  settings: {
    method: "cclp", similarity: "euclidean", bandwidth: 0.15, chain_steps: 10, weight: 1, step_size: 0.05,
  },
  compare: "none",
  show: { cclp: true, supervised: true, entropy: false, regions: true },
};
let start = null; // the scene that reset goes back to
let edited = false; // whether it is no longer the layout's
let playing = false, waiting = false, work = Promise.resolve(), timer = 0, frames = 0;

const shown = () => panels.slice(0, COMPARED[situation.compare].length);
const settingsOf = (panel) => ({ ...situation.settings, ...COMPARED[situation.compare][panels.indexOf(panel)] });
// Side by side, of the two methods each picture has the force that moves it.
const shownIn = (panel) => situation.compare !== "method" ? situation.show
  : { ...situation.show, [settingsOf(panel).method === "cclp" ? "entropy" : "cclp"]: false };
const showMessage = (text) => { byId("message").textContent = text; };

function begin() {
  playing = false;
  const { name, points, noise, seed } = situation.layout;
  return inTurn(async () => {
    setStart(await ask("layout", { name, points, noise, seed }));
    edited = false;
    await advance(0);
    keepAddress();
  });
}

function setStart({ points, truth, labels, classifier }) {
  start = { points, truth, labels, classifier };
  for (const panel of panels) panel.begin(start);
}

// One action after the other; an error is shown.
function inTurn(action) {
  work = work.then(action).catch((error) => showMessage(error.message));
  return work;
}

// Look at all pictures as they stand, once, however often it is asked for meanwhile.
function refresh() {
  draw();
  if (waiting) return;
  waiting = true;
  inTurn(async () => {
    waiting = false;
    await advance(0);
    keepAddress();
  });
}

async function advance(steps) {
  const begun = performance.now();
  await Promise.all(shown().map((panel) => panel.look(settingsOf(panel), steps)));
  if (shown().some((panel) => !panel.frame)) return; // begun anew meanwhile: a look at it is waiting
  drawPanels(steps ? 0.2 : 1);
  if (!playing || ++frames % CHARTED === 0) drawCharts();
  report();
  if (steps) performance.measure("frame", { start: begun }); // benchmarks/lab.py reads it
}

function play() {
  playing = !playing;
  button("play", playing ? "❚❚ Pause" : "▶ Play");
  if (playing) inTurn(run).finally(() => { playing = false; button("play", "▶ Play"); });
}

async function run() {
  performance.clearMeasures("frame");
  while (playing && !document.hidden && shown()[0].iteration < LAST) {
    await advance(Number(byId("speed").value));
    await new Promise(requestAnimationFrame);
  }
  draw();
  keepAddress();
}

function step() {
  playing = false;
  inTurn(async () => {
    await advance(1);
    keepAddress();
  });
}

function reset() {
  playing = false;
  for (const panel of panels) panel.begin(start);
  refresh();
}

function redraw() {
  situation.layout.seed++;
  begin();
}

// Labels, points and removals are part of the beginning too; a place only while it is one.
function edit(change) {
  edited = true;
  panels.forEach(change);
  const { labels, truth } = panels[0].scene;
  start.labels = [...labels];
  start.truth = [...truth];
  refresh();
}

const act = {
  play, step, reset, redraw,
  help: () => byId("help").showModal(),
  choose(panel, index) {
    if (panel.chosen === index) return;
    for (const other of panels) other.chosen = null;
    panel.chosen = index;
    refresh();
  },
  move(index, place) {
    if (panels[0].iteration === 0) start.points[index] = [...place];
    edit((panel) => panel.move(index, [...place]));
  },
  drop: refresh,
  add(place) {
    if (start.points.length >= MOST) return showMessage(`There is room for ${MOST} points.`);
    start.points.push([...place]);
    edit((panel) => panel.add([...place]));
  },
  remove(index) {
    start.points.splice(index, 1);
    edit((panel) => panel.remove(index));
  },
  label: (index, value) => edit((panel) => panel.label(index, value)),
  labelNext(index) {
    const { labels, classifier } = panels[0].scene;
    const next = labels[index] + 1;
    act.label(index, next < classifier.length ? next : -1);
  },
};

function draw() {
  drawPanels(1);
  drawCharts();
}

function drawPanels(follow) {
  for (const panel of shown()) panel.draw(shownIn(panel), follow);
}

function drawCharts() {
  const drawn = shown().filter((panel) => panel.frame);
  if (!drawn.length) return;
  const each = (make) => drawn.flatMap((panel, i) => make(panel, i ? [4, 3] : undefined));
  const { frame, scene } = drawn.at(-1), marks = frame.landmarks;
  drawChart(byId("loss-chart"), {
    label: "Loss", lines: each((panel, dash) => panel.lossLines(dash)), low: 0,
    marks: [{ value: marks.compact, name: "compact" }, { value: marks.one_spot, name: "one spot" }],
  });
  drawChart(byId("mass-chart"), {
    label: "Class masses", lines: each((panel, dash) => panel.massLines(dash)), low: 0,
    high: scene.points.length,
    marks: [{ value: scene.points.length / frame.masses.length, name: "balanced" }],
  });
  drawChart(byId("accuracy-chart"), {
    label: "Linear accuracy", lines: each((panel, dash) => panel.accuracyLine(dash)), low: 0, high: 100,
  });
  for (const note of document.querySelectorAll(".dashed")) note.hidden = drawn.length < 2;
  keys("loss-keys", [["CCLP", "var(--cclp)"], ["supervised", "var(--supervised)"], ["entropy", "var(--entropy)"]]);
  keys("mass-keys", frame.masses.map((_, c) => [String(c + 1), `var(--class-${c})`]));
}

function keys(id, names) {
  if (byId(id).childElementCount === names.length) return;
  byId(id).replaceChildren(...names.map(([name, colour]) => {
    const key = element("span"), dot = element("i");
    dot.style.setProperty("--key", colour);
    key.append(dot, name);
    return key;
  }));
}

// The pictures in words.
function report() {
  const found = new Map();
  for (const panel of shown()) {
    const { method, chain_steps } = settingsOf(panel), { accuracy, warnings } = panel.frame;
    panel.figure.querySelector(".name").textContent = method === "cclp" ? `CCLP, S = ${chain_steps}` : "Entropy";
    const score = accuracy === null ? "no class is known" : `${(100 * accuracy).toFixed(1)} % linear accuracy`;
    panel.figure.querySelector(".score").textContent = score;
    const point = describe(panel);
    panel.figure.querySelector(".readout").textContent = point;
    panel.canvas.setAttribute("aria-label", `${count(panel.scene)}, ${score}. ${point}`.trim());
    for (const { code, message } of warnings) if (!found.has(code)) found.set(code, message);
  }
  byId("iteration").value = shown()[0].iteration;
  const [first] = found.keys();
  const full = panels[0].iteration >= LAST ? `Paused after ${LAST} steps.` : "";
  showMessage(full || (WARNINGS[first] ?? ""));
  byId("message").title = [...found.values()].join(" ");
}

const percent = (share) => `${(100 * share).toFixed(0)} %`;

function count({ points, labels }) {
  return `${points.length} points, ${labels.filter((c) => c >= 0).length} labeled`;
}

function describe({ chosen, frame: { posteriors, edges } }) {
  if (chosen === null || !posteriors[chosen] || !edges) return "";
  const shares = posteriors[chosen].map((p, c) => `class ${c + 1} ${percent(p)}`);
  return `Point ${chosen + 1}: ${shares.join(", ")}. A walk stays here with ${percent(edges[chosen])}.`;
}

function current() {
  const { layout, settings, compare, show } = situation;
  const one = compare === "none" && panels[0].iteration > 0;
  const { points, truth, labels, classifier } = one ? panels[0].scene : start;
  const scene = one || edited ? { points, truth, labels, classifier } : undefined;
  return { layout, settings, compare, show, scene };
}

// Browsers refuse an address that changes many times a second.
function keepAddress() {
  clearTimeout(timer);
  timer = setTimeout(() => history.replaceState(null, "", `#${toLink(current())}`), 200);
}

// The server checks it first: a link may hold anything.
function open() {
  return inTurn(async () => {
    const given = fromLink(location.hash);
    const layout = { ...situation.layout, ...given.layout };
    const settings = { ...situation.settings, ...given.settings };
    const scene = given.scene ?? await ask("layout", layout);
    await ask("frame", { scene: { ...scene, settings } });
    Object.assign(situation, { layout, settings });
    for (const name in situation.show) situation.show[name] = given.show?.[name] ?? situation.show[name];
    if (Object.hasOwn(COMPARED, given.compare)) situation.compare = given.compare;
    setStart(scene);
    edited = Boolean(given.scene);
  }).then(fillForm).then(() => start ? refresh() : beginAnyway());
}

const beginAnyway = () => begin().then(() => showMessage("The link cannot be used: this is the beginning."));

const button = (id, text) => { byId(id).textContent = text; };

function fillForm() {
  const { layout, settings, compare, show } = situation;
  const values = { layout: layout.name, points: layout.points, noise: layout.noise, ...settings, compare };
  for (const [name, value] of Object.entries(values)) {
    const input = form.elements[name];
    if (!input) continue;
    input.value = input.type === "range" ? toSlider(input, value) : value;
    if (input.type === "range") {
      input.closest("label").querySelector("b").textContent = value;
      input.setAttribute("aria-valuetext", String(value));
    }
  }
  for (const [name, on] of Object.entries(show)) if (form.elements[name]) form.elements[name].checked = on;
  form.elements.bandwidth.disabled = settings.similarity !== "euclidean";
  panels[1].figure.hidden = compare === "none";
}

function change({ target }) {
  const { name } = target;
  const value = target.type === "range" ? fromSlider(target) : target.value;
  if (target.type === "checkbox") situation.show[name] = target.checked;
  else if (name === "layout") Object.assign(situation.layout, { name: value, noise: NOISE[value] });
  else if (name in situation.layout) situation.layout[name] = value;
  else if (name === "compare") situation.compare = value;
  else if (name in situation.settings) situation.settings[name] = value;
  if (value === "entropy" || value === "method") situation.show.entropy = true;
  fillForm();
  if (["layout", "points", "noise"].includes(name)) begin();
  else if (name === "compare") reset();
  else refresh();
}

async function share() {
  history.replaceState(null, "", `#${toLink(current())}`);
  try {
    await navigator.clipboard.writeText(location.href);
    button("share", "Copied");
  } catch {
    button("share", "See address");
  }
  setTimeout(() => button("share", "Link"), 1500);
}

form.querySelectorAll("[data-log]").forEach(makeLogarithmic);
for (const panel of panels) followPointer(panel, act);
followKeys(() => shown().find((panel) => panel.chosen !== null) ?? panels[0], act);
form.addEventListener("input", change);
form.addEventListener("submit", (event) => event.preventDefault());
byId("save").addEventListener("click", () => savePicture(shown()));
for (const [id, action] of Object.entries({ play, step, reset, redraw, share, "help-open": act.help })) {
  byId(id).addEventListener("click", () => action());
}
addEventListener("hashchange", open);
new ResizeObserver(draw).observe(document.querySelector(".stage"));
followTheme(byId("theme"), draw);
byId("to-run").hidden = !(await ask("about")).run;
await open();
