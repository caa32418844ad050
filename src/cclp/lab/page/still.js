// A situation that was computed beforehand: a slider over its frames.

import { byId, colours, followTheme } from "./common.js";
import { drawChart } from "./chart.js";
import { View, drawScene } from "./picture.js";

const { labels, settings, frames } = JSON.parse(byId("data").textContent);
const slider = byId("time"), view = new View();
const show = { cclp: settings.method === "cclp", entropy: settings.method === "entropy", supervised: true, regions: true };
let timer = 0;

function drawNow() {
  const frame = frames[slider.value];
  view.follow(frame.points);
  drawScene(document.querySelector(".panel canvas"), view, labels, frame, show);
  document.querySelector(".name").textContent = settings.method === "cclp" ? `CCLP, S = ${settings.chain_steps}` : "Entropy";
  const known = frame.accuracy !== null;
  document.querySelector(".score").textContent = known ? `${(100 * frame.accuracy).toFixed(1)} % linear accuracy` : "";
  byId("iteration").value = frame.iteration;
  slider.setAttribute("aria-valuetext", `step ${frame.iteration}`);
  drawStillCharts(frames.slice(0, Number(slider.value) + 1), frame.landmarks);
}

function drawStillCharts(past, landmarks) {
  const x = past.map((frame) => frame.iteration);
  const high = frames.at(-1).iteration;
  const line = (name, colour, y) => [{ name, colour, x, y }, { name: "end", colour, x: [high], y: [null] }];
  drawChart(byId("loss-chart"), {
    label: "CCLP loss", lines: line("CCLP", colours.cclp, past.map((frame) => frame.losses.cclp)),
    marks: [{ value: landmarks.compact, name: "compact" }, { value: frames[0].losses.cclp, name: "beginning" }],
  });
  drawChart(byId("accuracy-chart"), {
    label: "Linear accuracy, %", low: 0, high: 100,
    lines: line("accuracy", colours.accent, past.map((frame) => frame.accuracy === null ? null : 100 * frame.accuracy)),
  });
}

function pause() {
  clearInterval(timer);
  timer = 0;
  byId("play").textContent = "▶ Play";
}

function play() {
  if (timer) return pause();
  if (slider.value === slider.max) slider.value = 0;
  byId("play").textContent = "❚❚ Pause";
  timer = setInterval(() => {
    slider.value = Number(slider.value) + 1;
    drawNow();
    if (slider.value === slider.max) pause();
  }, 120);
}

slider.max = frames.length - 1;
slider.addEventListener("input", () => { pause(); drawNow(); });
byId("play").addEventListener("click", play);
new ResizeObserver(drawNow).observe(document.querySelector(".stage"));
followTheme(null, drawNow);
