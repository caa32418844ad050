// Lines over steps on a canvas.

import { colours, surface } from "./common.js";

const LEFT = 40, RIGHT = 8, TOP = 8, BOTTOM = 18;

// lines: [{name, colour, x, y, dash, width}], gaps where y is null; marks: [{value, name}]; cursor: a
// step to point at; named: whether the names of several lines are written into the chart.
export function drawChart(canvas, { label, lines, marks = [], low, high, log = false, cursor, named = false }) {
  canvas.setAttribute("aria-label", `${label}. ${lines.map(inWords).join("; ")}`);
  const ground = surface(canvas);
  if (!ground) return;
  const { context, width, height } = ground;
  const values = lines.flatMap((line) => line.y.filter((v) => v !== null && (!log || v > 0)));
  if (!values.length) return;
  if (named && lines.length > 1) values.push(1.3 * Math.max(...values)); // room for them
  values.push(...marks.map((mark) => mark.value), ...[low, high].filter((v) => v !== undefined));
  const up = axis(...span(values, log), height - BOTTOM, TOP, log);
  const last = Math.max(1, ...lines.map((line) => line.x.at(-1) ?? 0));
  const across = axis(0, last, LEFT, width - RIGHT, false);
  drawAxes(context, across, up, width, height);
  const names = drawMarks(context, marks, up, width);
  if (cursor !== undefined) drawCursor(context, across.place(cursor), height);
  for (const line of lines) drawLine(context, line, across, up);
  if (lines.length > 1 && named) names.push(...lines.map(({ name, colour }, i) => [name, width - RIGHT - 2, TOP + 13 * i, "top", colour]));
  drawNames(context, names);
}

function inWords({ name, y }) {
  const known = y.filter((v) => v !== null);
  return known.length ? `${name}: ${short(known.at(-1))}` : `${name}: nothing yet`;
}

function span(values, log) {
  let [least, most] = [Math.min(...values), Math.max(...values)];
  if (log) return [Math.max(least, most / 1e12), most * 1.5];
  if (most - least < 1e-9) [least, most] = [least - 0.5, most + 0.5];
  const room = 0.06 * (most - least);
  return [least < 0 || least - room > 0 ? least - room : least, most + room];
}

function axis(low, high, start, end, log) {
  const bend = log ? Math.log10 : (v) => v;
  const place = (v) => start + ((bend(Math.max(v, log ? low : v)) - bend(low)) / (bend(high) - bend(low))) * (end - start);
  return { place, low, high, log };
}

function ticks({ low, high, log }, count) {
  if (log) {
    const every = Math.ceil((Math.log10(high) - Math.log10(low)) / count) || 1;
    const found = [];
    for (let e = Math.ceil(Math.log10(low)); e <= Math.log10(high); e += every) found.push(10 ** e);
    return found;
  }
  const unit = 10 ** Math.floor(Math.log10((high - low) / count));
  const step = unit * [1, 2, 5, 10].find((f) => (high - low) / (f * unit) <= count);
  const found = [];
  for (let i = Math.ceil(low / step); i * step <= high; i++) found.push(Number((i * step).toPrecision(12)));
  return found;
}

export function short(value) {
  if (value !== 0 && (Math.abs(value) < 1e-3 || Math.abs(value) >= 1e5)) {
    return value.toExponential(0).replace("e+", "e");
  }
  return String(Number(value.toPrecision(3)));
}

function drawAxes(context, across, up, width, height) {
  context.font = "11px system-ui, sans-serif";
  context.fillStyle = colours.soft;
  context.strokeStyle = colours.line;
  context.lineWidth = 1;
  context.textAlign = "right";
  context.textBaseline = "middle";
  for (const value of ticks(up, Math.max(2, Math.floor(height / 32)))) {
    const y = Math.round(up.place(value)) + 0.5;
    context.beginPath();
    context.moveTo(LEFT, y);
    context.lineTo(width - RIGHT, y);
    context.stroke();
    context.fillText(short(value), LEFT - 5, y);
  }
  context.textBaseline = "top";
  for (const value of ticks(across, Math.max(2, Math.min(5, Math.floor(width / 70))))) {
    const x = across.place(value);
    context.textAlign = x > width - 30 ? "right" : "center";
    if (Number.isInteger(value)) context.fillText(String(value), Math.min(x, width - 2), height - BOTTOM + 5);
  }
}

function drawMarks(context, marks, up, width) {
  const names = [];
  context.strokeStyle = colours.soft;
  context.setLineDash([5, 4]);
  for (const { value, name } of marks) {
    const y = up.place(value);
    context.beginPath();
    context.moveTo(LEFT, y);
    context.lineTo(width - RIGHT, y);
    context.stroke();
    names.push(y < TOP + 14 ? [name, width - RIGHT - 2, y + 2, "top"] : [name, width - RIGHT - 2, y - 1, "bottom"]);
  }
  context.setLineDash([]);
  return names;
}

function drawCursor(context, x, height) {
  Object.assign(context, { strokeStyle: colours.soft, lineWidth: 1 });
  context.beginPath();
  context.moveTo(x, TOP);
  context.lineTo(x, height - BOTTOM);
  context.stroke();
}

function drawNames(context, names) {
  Object.assign(context, { strokeStyle: colours.card, lineWidth: 3, textAlign: "right" });
  for (const [name, x, y, baseline, colour] of names) {
    context.textBaseline = baseline;
    context.fillStyle = colour ?? colours.soft;
    context.strokeText(name, x, y);
    context.fillText(name, x, y);
  }
}

function drawLine(context, { colour, x, y, dash, width = 1.8 }, across, up) {
  context.strokeStyle = context.fillStyle = colour;
  context.lineWidth = width;
  context.lineJoin = "round";
  context.setLineDash(dash ?? []);
  context.beginPath();
  let joined = false;
  x.forEach((step, i) => {
    if (y[i] === null) {
      joined = false;
      return;
    }
    const place = [across.place(step), up.place(y[i])];
    if (joined) context.lineTo(...place);
    else context.moveTo(...place);
    joined = true;
  });
  context.stroke();
  context.setLineDash([]);
  if (x.length === 1 && y[0] !== null) {
    context.beginPath();
    context.arc(across.place(x[0]), up.place(y[0]), 3, 0, 2 * Math.PI);
    context.fill();
  }
}
