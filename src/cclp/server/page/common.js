// What all pages share: the server, the theme, small parts of a document.

export const byId = (id) => document.getElementById(id);

// No answer came.
export class Lost extends Error {}

// An answer that is not the one that was asked for.
export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

const command = () => document.title.split(":")[0];

export async function ask(path, body, tries = 20) {
  const options = body && {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
  };
  let answer;
  try {
    answer = await fetch(path, options);
  } catch {
    throw new Lost(`The server is gone: start ${command()} again.`);
  }
  if (answer.status === 503 && tries > 0) {
    await new Promise((resolve) => setTimeout(resolve, 300));
    return ask(path, body, tries - 1);
  }
  const content = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Refused(answer.status, content.error ?? `${command()} has failed: its terminal says why.`);
  return content;
}

export function element(name, text, className) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}

const rgb = (hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));

// The colours of the page, for canvases; read again when the theme changes.
export const colours = {};

function readColours() {
  const style = getComputedStyle(document.documentElement);
  const names = ["card", "ink", "soft", "line", "open", "edge", "accent", "supervised", "cclp", "entropy"];
  for (const name of names) colours[name] = style.getPropertyValue(`--${name}`).trim();
  colours.classes = Array.from({ length: 10 }, (_, c) => style.getPropertyValue(`--class-${c}`).trim());
  colours.rgb = { open: rgb(colours.open), classes: colours.classes.map(rgb) };
}

export function followTheme(button, redraw) {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  let chosen = null;
  const apply = () => {
    document.documentElement.dataset.theme = chosen ?? (dark.matches ? "dark" : "light");
    readColours();
    redraw();
  };
  button?.addEventListener("click", () => {
    chosen = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
    apply();
  });
  dark.addEventListener("change", apply);
  apply();
}

// A canvas as large as it is shown, in the pixels of the screen; null while it is not shown.
export function surface(canvas) {
  const width = canvas.clientWidth, height = canvas.clientHeight, ratio = devicePixelRatio || 1;
  if (!width || !height) return null;
  const [across, down] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== across || canvas.height !== down) [canvas.width, canvas.height] = [across, down];
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  return { context, width, height };
}

// Round each mixture of open and a class to a colour: the surer, the fuller.
export function shade(probabilities) {
  let best = 0;
  for (let c = 1; c < probabilities.length; c++) if (probabilities[c] > probabilities[best]) best = c;
  const chance = 1 / probabilities.length;
  const sure = Math.max(0, (probabilities[best] - chance) / (1 - chance));
  const { open, classes } = colours.rgb;
  const mixed = open.map((v, i) => Math.round(v + sure * (classes[best][i] - v)));
  return `rgb(${mixed.join(",")})`;
}
