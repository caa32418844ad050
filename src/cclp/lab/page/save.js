// The pictures as one PNG file, each under a line of text.

import { colours, element } from "./common.js";

export function savePicture(panels) {
  const drawn = panels.map((panel) => panel.canvas), head = 26 * (devicePixelRatio || 1);
  const sheet = element("canvas");
  sheet.width = drawn.reduce((sum, canvas) => sum + canvas.width, 0);
  sheet.height = drawn[0].height + head;
  const context = sheet.getContext("2d");
  context.fillStyle = colours.card;
  context.fillRect(0, 0, sheet.width, sheet.height);
  context.fillStyle = colours.ink;
  context.font = `${head / 2}px system-ui, sans-serif`;
  let left = 0;
  for (const panel of panels) {
    const words = [...panel.figure.querySelectorAll(".name, .score")].map((part) => part.textContent);
    context.fillText(`${words.join(", ")}, step ${panel.iteration}`, left + head / 2, head * 0.7);
    context.drawImage(panel.canvas, left, head);
    left += panel.canvas.width;
  }
  const anchor = element("a");
  anchor.download = "cclp-lab.png";
  anchor.href = sheet.toDataURL("image/png");
  anchor.click();
}
