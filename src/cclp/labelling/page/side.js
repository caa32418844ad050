// Beside the question: classes with their keys, how far one has come, what is advised.

import { byId, colours, element } from "./common.js";
import { drawChart } from "./chart.js";
import { classColour, mark, percent } from "./marks.js";
import { store } from "./store.js";

const KEYS = "1234567890abcdefghijklmnopqrstuvwxyz"; // in the order of a keyboard, and the alphabet

const many = (count, one, more) => `${count.toLocaleString("en")} ${count === 1 ? one : more}`;

export function drawSide(state) {
  drawClasses(state);
  byId("labeled").textContent = state.labeled.toLocaleString("en");
  byId("labeled-of").textContent = `${state.labeled === 1 ? "label" : "labels"} of ${state.total.toLocaleString("en")}`;
  drawError(state);
  drawCurve(state);
  drawAdvice(state);
  drawTraining(state);
  const aside = [[state.not_sure, "not sure"], [state.none, "none of these"]].filter(([count]) => count);
  byId("set-aside").textContent = aside.map(([count, what]) => `${count.toLocaleString("en")} ${what}`).join(" · ");
}

function drawClasses({ classes, total }) {
  const most = Math.max(1, ...classes.map((c) => c.propagated));
  const rank = ({ key }) => (key ? KEYS.indexOf(key) : KEYS.length);
  byId("classes").replaceChildren(...classes.toSorted((a, b) => rank(a) - rank(b)).map((cls) => {
    const row = element("li"), button = element("button", undefined, "class");
    const bar = element("span", undefined, "bar-of");
    button.type = "button";
    button.dataset.answer = cls.id;
    button.title = `${cls.name}: ${many(cls.count, "label", "labels")}, ${cls.propagated.toLocaleString("en")} of ${total.toLocaleString("en")} samples are held for it`;
    bar.style.setProperty("--part", cls.propagated / most);
    bar.style.setProperty("--colour", classColour(cls.id));
    button.append(element("kbd", cls.key || "n"), mark(cls.id), element("span", cls.name, "name"),
      element("span", cls.count.toLocaleString("en"), "count"), bar);
    row.append(button);
    return row;
  }), ...(classes.length ? [] : [element("li", "None yet: n makes the first.", "note")]));
}

function drawError({ expected, source_of_predictions: source }) {
  const { error, low, high } = expected;
  byId("error").textContent = error === null ? "" : percent(error);
  byId("error-of").textContent = error === null ? "expected error: after some labels"
    : `expected error (${percent(low)} to ${percent(high)}) of the ${source}`;
}

function drawCurve({ history }) {
  const drawn = history.filter(([, error]) => error !== null);
  byId("fallen").hidden = drawn.length < 2;
  if (drawn.length < 2) return;
  const x = drawn.map(([labels]) => labels), line = (place) => drawn.map((h) => (h[place] === null ? null : 100 * h[place]));
  drawChart(byId("curve"), {
    label: "Expected error in %, by labels", low: 0,
    lines: [
      { name: "high", colour: colours.soft, x, y: line(3), dash: [2, 3], width: 1 },
      { name: "low", colour: colours.soft, x, y: line(2), dash: [2, 3], width: 1 },
      { name: "expected error, %", colour: colours.accent, x, y: line(1), width: 2.2 },
    ],
  });
}

const SIGNS = { begin: "→", go_on: "→", enough: "✓", poor_graph: "!", disagreements: "?" };

const OFFERS = { disagreements: ["Look at them", "d", "disagree"], poor_graph: ["Train…"], enough: ["Confirm pages", "c", "confirm"] };

function drawAdvice({ advice }) {
  byId("advice").className = advice.kind;
  if (byId("advice").dataset.text === advice.text) return; // said once to a screen reader
  byId("advice").dataset.text = advice.text;
  const text = element("span", `${advice.text} `), [what, key, view] = OFFERS[advice.kind] ?? [];
  if (what) {
    const button = element("button", `${what} `);
    button.type = "button";
    if (key) button.append(element("kbd", key));
    button.dataset[view ? "go" : "open"] = view ?? "train";
    text.append(button);
  }
  byId("advice").replaceChildren(element("span", SIGNS[advice.kind] ?? "→", "sign"), text);
}

function drawTraining({ training }) {
  const box = byId("training");
  box.hidden = training === null;
  byId("train-open").disabled = ["running", "reading"].includes(training?.state);
  if (training === null) return;
  const { state, step, steps, message } = training, parts = [];
  if (state === "running") {
    const bar = element("progress"), stop = element("button", "Stop");
    bar.setAttribute("aria-label", "Training");
    if (steps > 0) Object.assign(bar, { max: steps, value: step });
    stop.type = "button";
    stop.id = "train-stop";
    const what = steps > 0 ? `Training: step ${step.toLocaleString("en")} of ${steps.toLocaleString("en")}` : "Training begins…";
    parts.push(element("span", message && !step ? message : what), bar, stop);
  } else if (state === "reading") parts.push(element("span", "Trained. Reading what the network predicts…"));
  else if (state === "done") {
    parts.push(element("span", `✓ Trained. ${message || "Its predictions replace the graph's."}`), element("small", training.run, "path"));
  } else parts.push(element("span", `The training has failed: ${message}`, "trouble"));
  const words = parts.map((part) => part.textContent).join("|");
  if (box.dataset.words === words) return; // the button Stop must not be replaced under a click
  box.dataset.words = words;
  box.replaceChildren(...parts);
}

// The classes the keys of which mean another thing in a view.
export function markPage(id) {
  for (const button of byId("classes").querySelectorAll("button")) {
    button.toggleAttribute("aria-current", Number(button.dataset.answer) === id);
  }
}

export const answered = () => store.state.labeled + store.state.not_sure + store.state.none;
