// The page of cclp label: which way to label is shown, what keys mean, what was answered last.

import { byId, element, followTheme } from "./common.js";
import { AskView } from "./ask.js";
import { followDialogs, isOpen, openHelp, openNames } from "./dialogs.js";
import { GridView } from "./grid.js";
import { MapView } from "./map.js";
import { mark, named } from "./marks.js";
import { small } from "./sample.js";
import { answered, drawSide, markPage } from "./side.js";
import { change, changedBy, kept, onState, refresh, resume, say, store } from "./store.js";

const TRAIL = 14, TAUGHT = 6; // answers that are shown; after so many the hint goes
const HINTS = {
  ask: "One key is one answer. n: a class that is not there yet. Enter: what the neighbours say. z: undo.",
  confirm: "A page at once: un-tick what is wrong, then Enter. A class's key turns to its page.",
  map: "Shift and drag: a lasso, then the key of its class. Click: one sample. Drag moves, the wheel zooms.",
  disagree: "Labels that their neighbours contradict. The key of the right class corrects one, s leaves it as it is.",
  search: "Find samples by name, text or class; ↓ goes to what is found.",
};

const asking = new AskView();
const grid = new GridView(openSample, remember);
const map = new MapView(openSample);
const VIEWS = { ask: asking, disagree: asking, confirm: grid, search: grid, map };
let shown = null, began = false;

say.message = (text) => { byId("message").textContent = text; };
say.trouble = (text) => { byId("trouble").textContent = text; byId("trouble").hidden = !text; };

async function show(name, sample = null) {
  if (store.state?.phase !== "ready") return;
  if (shown !== null && VIEWS[shown] !== VIEWS[name]) VIEWS[shown].close();
  if (shown !== null) say.message(""); // the first view leaves what was said of the time before
  shown = name;
  kept.set("view", name);
  for (const tab of document.querySelectorAll("[role=tab]")) {
    tab.setAttribute("aria-selected", String(tab.dataset.view === name));
  }
  byId("actions").hidden = name === "confirm";
  drawHint();
  try {
    await VIEWS[name].open(name, sample);
  } catch (error) {
    say.message(error.message);
  }
  drawMarks();
}

function openSample(sample) {
  show("ask", sample);
}

function drawHint() {
  byId("hint").textContent = shown === "ask" && answered() >= TAUGHT ? "" : HINTS[shown] ?? "";
}

function drawMarks() {
  markPage(shown === "confirm" ? grid.of : null);
}

// -- answers -------------------------------------------------------------------------------------

async function answer(value) {
  if (store.busy || shown === null) return;
  say.message("");
  flash(value);
  try {
    const samples = await VIEWS[shown].answer(value, `Your answer “${named(store.state, value)}”`);
    if (samples) remember(samples, value);
  } catch (error) {
    say.message(error.message);
  }
}

function flash(value) {
  const button = document.querySelector(`#classes [data-answer="${value}"], #actions [data-do="${value}"]`);
  button?.classList.remove("flash");
  void button?.offsetWidth; // begin again
  button?.classList.add("flash");
}

function remember(samples, value) {
  for (const sample of samples) asking.done.add(sample);
  const trail = kept.get("trail", []).filter(([sample]) => !samples.includes(sample));
  kept.set("trail", [...trail, ...samples.slice(-TRAIL).map((sample) => [sample, value])].slice(-TRAIL));
  drawTrail();
  drawHint();
}

function drawTrail() {
  const trail = kept.get("trail", []).toReversed();
  byId("trail").replaceChildren(...trail.map(([sample, value]) => {
    const item = element("li"), button = element("button"), found = store.state.classes.find((c) => c.id === value);
    button.type = "button";
    button.title = `${named(store.state, value)}: see it again`;
    button.addEventListener("click", () => openSample(sample));
    const foot = element("span", undefined, "chip");
    foot.append(...(found ? [mark(found.id), element("span", found.name)] : [element("span", { not_sure: "?", none: "∅" }[value] ?? "–")]));
    button.append(small(sample), foot);
    item.append(button);
    return item;
  }));
}

async function back(which) {
  try {
    await goBack(which);
  } catch (error) {
    say.message(error.message);
  }
}

async function goBack(which) {
  if (store.busy || !store.state[`can_${which}`]) {
    if (!store.busy) say.message(`There is nothing to ${which}.`);
    return;
  }
  const what = which === "undo" ? "Undo" : "Redo";
  const samples = await changedBy(() => change(`api/${which}`, {}, what));
  if (samples === null) return;
  for (const sample of samples) asking.done[which === "undo" ? "delete" : "add"](sample);
  if (which === "undo") kept.set("trail", kept.get("trail", []).filter(([sample]) => !samples.includes(sample)));
  drawTrail();
  if (shown === "ask" && samples.length === 1) {
    if (which === "undo") await asking.pick(samples[0]);
    else await asking.advance(samples[0]);
  } else if (shown === "map") await map.learn();
  else if (shown === "confirm") await grid.turnTo(grid.of);
  else if (shown === "search") await grid.search();
  else if (shown !== null) await asking.advance(null);
  const many = samples.length === 0 ? "A change of the classes" : samples.length === 1 ? "One answer" : `${samples.length.toLocaleString("en")} answers`;
  say.message(`${many} ${which === "undo" ? "taken back" : "given again"}.`);
}

// -- keys and buttons ----------------------------------------------------------------------------

const ACTIONS = [
  ["skip", "s", "Skip", () => (VIEWS[shown] === asking ? asking.skip() : undefined)],
  ["not_sure", "u", "Not sure", () => answer("not_sure")],
  ["none", "x", "None of these", () => answer("none")],
  ["name", "n", "New class…", () => openNames()],
  ["undo", "z", "Undo", () => back("undo")],
  ["redo", "y", "Redo", () => back("redo")],
];
const KEYS = { q: "ask", c: "confirm", m: "map", d: "disagree", "/": "search" };

function onKey(event) {
  if (event.altKey || isOpen() || store.state?.phase !== "ready") return;
  const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  if (event.ctrlKey || event.metaKey) {
    const which = key === "z" ? (event.shiftKey ? "redo" : "undo") : key === "y" ? "redo" : null;
    if (which === null || event.target.closest("input, textarea")) return;
    event.preventDefault();
    back(which);
    return;
  }
  if (event.target.closest("input, select, textarea")) return;
  if (event.target.closest("button") && (key === "Enter" || key === " ")) return;
  const meant = meaning(key, event);
  if (!meant) return;
  event.preventDefault();
  if (!event.repeat || key.startsWith("Arrow")) meant();
}

function meaning(key, event) {
  if (key === "?") return openHelp;
  if (KEYS[key]) return () => show(KEYS[key]);
  const action = ACTIONS.find(([, its]) => its === key);
  if (action) return action[3];
  if (key === "Backspace") return () => back("undo");
  const view = VIEWS[shown];
  if (view?.key?.(event)) return () => drawMarks();
  const cls = store.state.classes.find((c) => c.key === key);
  if (cls) return () => answer(cls.id);
  if (key === "Enter" && view === asking) {
    const id = asking.suggestion();
    return id === null ? null : () => answer(id);
  }
  return key === "Escape" && shown !== "ask" ? () => show("ask") : null;
}

function makeActions() {
  byId("actions").replaceChildren(...ACTIONS.map(([what, key, text, act]) => {
    const button = element("button");
    button.type = "button";
    button.dataset.do = what;
    button.append(element("kbd", key), text);
    button.addEventListener("click", act);
    return button;
  }));
}

document.addEventListener("keydown", onKey);
document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-answer]"), tab = event.target.closest("[role=tab]");
  const offer = event.target.closest("#advice button");
  if (event.detail > 0 && !event.target.closest("dialog")) event.target.closest("button")?.blur(); // Enter is an answer, not another click
  if (tab) show(tab.dataset.view);
  if (offer?.dataset.go) show(offer.dataset.go);
  else if (offer) byId("train-open").click();
  if (!button) return;
  const id = Number(button.dataset.answer);
  if (shown === "confirm") grid.turnTo(id).then(drawMarks);
  else answer(id);
});

// -- state ---------------------------------------------------------------------------------------

onState((state, before) => {
  byId("name").textContent = `${state.name} · ${state.total.toLocaleString("en")} ${state.kind === "images" ? "images" : state.kind === "text" ? "texts" : "rows"}`;
  document.title = `cclp label: ${state.name}`;
  drawSide(state);
  drawMarks();
  for (const [what] of ACTIONS.slice(4)) document.querySelector(`[data-do=${what}]`).disabled = !state[`can_${what}`];
  if (state.phase !== "ready") wait(state);
  else if (!began) begin();
  else {
    drawHint();
    drawTrail();
    VIEWS[shown]?.onState(state, before).catch((error) => say.message(error.message));
  }
});

function wait({ progress, phase, problem }) {
  byId("wait").hidden = false;
  byId("wait-bar").hidden = Boolean(problem);
  byId("wait-what").textContent = progress.what || (phase === "reading" ? "Reading the data" : "Building the graph");
  if (progress.done === null) byId("wait-bar").removeAttribute("value");
  else byId("wait-bar").value = progress.done;
}

async function begin() {
  began = true;
  byId("wait").hidden = true;
  byId("words").value = kept.get("words", "");
  const view = kept.get("view", "ask");
  await resume().catch((error) => say.message(error.message));
  drawTrail();
  await show(VIEWS[view] ? view : "ask", view === "ask" ? kept.get("sample", null) : null);
}

makeActions();
followDialogs(answer);
followTheme(byId("theme"), () => {
  if (!store.state) return;
  drawSide(store.state);
  drawMarks();
  if (shown === "map") map.draw();
  if (shown !== null && VIEWS[shown] === asking && asking.current) asking.drawCandidates();
});
addEventListener("focus", refresh);
document.addEventListener("visibilitychange", () => { if (!document.hidden) refresh(); });
refresh();
