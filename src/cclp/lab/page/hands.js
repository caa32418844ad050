// Pointer and keys on a picture: what was meant, not what comes of it.

const NEAR = 14, STILL = 4; // pixels

export function followPointer(panel, act) {
  const { canvas } = panel;
  let down = null;
  const place = (event) => [event.offsetX, event.offsetY];

  canvas.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    down = { at: place(event), index: panel.nearest(place(event), NEAR), moved: false };
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    const at = place(event);
    if (!down) {
      const index = panel.nearest(at, NEAR);
      canvas.classList.toggle("over", index !== null);
      act.choose(panel, index);
      return;
    }
    down.moved ||= Math.hypot(at[0] - down.at[0], at[1] - down.at[1]) > STILL;
    if (!down.moved || down.index === null) return;
    canvas.classList.add("moving");
    panel.held = { index: down.index, place: panel.view.toPlane(at) };
    act.move(down.index, panel.held.place);
  });
  const up = (event) => {
    canvas.classList.remove("moving");
    panel.held = null;
    if (down && !down.moved && event.type === "pointerup") {
      if (down.index === null) act.add(panel.view.toPlane(down.at));
      else act.labelNext(down.index);
    } else if (down?.moved) act.drop();
    down = null;
  };
  canvas.addEventListener("pointerup", up);
  canvas.addEventListener("pointercancel", up);
  canvas.addEventListener("pointerleave", () => !down && act.choose(panel, null));
}

const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };

export function followKeys(current, act) {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.closest("select, dialog[open]")) return;
    if (event.target.closest("input, button, a") && /^( |Arrow.*)$/.test(event.key)) return;
    const panel = current(), { chosen } = panel;
    const turn = (by) => act.choose(panel, ((chosen ?? -1) + by + panel.scene.points.length) % panel.scene.points.length);
    const keys = {
      " ": act.play, r: act.reset, n: act.redraw, "?": act.help, ".": () => turn(1), ",": () => turn(-1),
      a: () => act.add(panel.view.toPlane([panel.canvas.clientWidth / 2, panel.canvas.clientHeight / 2])),
    };
    if (!event.shiftKey) keys.ArrowRight = act.step;
    if (chosen !== null) {
      for (let c = 0; c < panel.scene.classifier.length; c++) keys[c + 1] = () => act.label(chosen, c);
      keys[0] = () => act.label(chosen, -1);
      keys.Delete = () => act.remove(chosen);
      if (event.shiftKey && ARROWS[event.key]) {
        const [x, y] = panel.scene.points[chosen], step = 10 / panel.view.scale;
        const [dx, dy] = ARROWS[event.key];
        keys[event.key] = () => { act.move(chosen, [x + dx * step, y + dy * step]); act.drop(); };
      }
    }
    const action = keys[event.key.length === 1 ? event.key.toLowerCase() : event.key];
    if (!action) return;
    event.preventDefault();
    action();
  });
}
