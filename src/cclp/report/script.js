"use strict";
(() => {
  const tip = document.getElementById("tip");
  const still = matchMedia("(prefers-reduced-motion: reduce)");

  function showTip(text, x, y) {
    tip.textContent = text;
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    tip.style.left = Math.max(4, Math.min(x + 14, innerWidth - box.width - 4)) + "px";
    tip.style.top = (y - box.height - 12 < 4 ? y + 16 : y - box.height - 12) + "px";
  }
  const hideTip = () => { tip.hidden = true; };

  function nearest(values, x) {
    let low = 0, high = values.length - 1;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (values[middle] < x) low = middle; else high = middle;
    }
    return Math.abs(values[low] - x) <= Math.abs(values[high] - x) ? low : high;
  }

  for (const svg of document.querySelectorAll("svg[data-chart]")) {
    const chart = JSON.parse(svg.dataset.chart);
    const cursor = svg.querySelector(".cursor");
    const width = svg.viewBox.baseVal.width;
    const steps = [...new Set(chart.series.flatMap((s) => s.x))].sort((a, b) => a - b);
    let at = steps.length - 1;
    const show = (y) => {
      const step = steps[at];
      const place = chart.left +
        (step - chart.x0) / (chart.x1 - chart.x0) * (chart.right - chart.left);
      cursor.setAttribute("x1", place);
      cursor.setAttribute("x2", place);
      cursor.style.visibility = "visible";
      const lines = chart.series.filter((s) => s.x.length && step <= s.x[s.x.length - 1])
        .map((s) => `${s.name}: ${s.y[nearest(s.x, step)]}${chart.unit}`);
      const box = svg.getBoundingClientRect();
      showTip(`step ${step.toLocaleString("en")}\n${lines.join("\n")}`,
        box.left + place / width * box.width, y ?? box.top + box.height / 3);
    };
    const leave = () => { cursor.style.visibility = "hidden"; hideTip(); };
    svg.addEventListener("pointermove", (event) => {
      const box = svg.getBoundingClientRect();
      const place = (event.clientX - box.left) / box.width * width;
      at = nearest(steps, chart.x0 +
        (place - chart.left) / (chart.right - chart.left) * (chart.x1 - chart.x0));
      show(event.clientY);
    });
    svg.addEventListener("pointerleave", leave);
    svg.addEventListener("blur", leave);
    svg.addEventListener("keydown", (event) => {
      const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!by) return;
      event.preventDefault();
      at = Math.max(0, Math.min(steps.length - 1, at + by));
      show();
    });
  }

  for (const root of document.querySelectorAll("[data-embedding]")) {
    const data = JSON.parse(root.querySelector("script").textContent);
    const paths = [...root.querySelectorAll(".points path")];
    const slider = root.querySelector("input");
    const output = root.querySelector("output");
    const select = root.querySelector("select");
    const play = root.querySelector(".play");
    const tally = root.querySelector(".tally");
    const last = data.steps.length - 1;
    let now = last, timer = 0;

    // Between two frames, points move on straight lines; marks and colours are those of the nearer.
    function draw(time) {
      const from = Math.floor(time), part = time - from;
      const a = data.places[from], b = data.places[Math.min(from + 1, last)];
      const predicted = data.predicted[Math.round(time)];
      let wrong = 0, known = 0;
      paths.forEach((path, i) => {
        const x = Math.round(a[2 * i] + part * (b[2 * i] - a[2 * i]));
        const y = Math.round(a[2 * i + 1] + part * (b[2 * i + 1] - a[2 * i + 1]));
        const bad = data.y[i] >= 0 && predicted[i] !== data.y[i];
        if (data.y[i] >= 0 && !data.labeled[i]) { known += 1; wrong += bad; }
        const kind = 2 * data.labeled[i] + bad;
        const colour = select.value === "y" ? data.y[i] : predicted[i];
        path.setAttribute("d", `M${x} ${y}${data.shapes[kind]}`);
        path.setAttribute("class", `p${kind} k${colour < 0 ? "-none" : colour}`);
      });
      now = time;
      const step = data.steps[Math.round(time)].toLocaleString("en");
      output.textContent = step;
      slider.value = Math.round(time);
      slider.setAttribute("aria-valuetext", `step ${step}`);
      tally.textContent = known
        ? `Step ${step}: ${wrong} of ${known} unlabeled points shown are predicted wrong.`
        : `Step ${step}`;
    }
    function stop() {
      cancelAnimationFrame(timer);
      clearTimeout(timer);
      timer = 0;
      play.textContent = "▶";
      play.setAttribute("aria-label", "Play the training");
    }
    function start() {
      const per = Math.max(150, Math.min(700, 9000 / Math.max(last, 1)));
      const first = now >= last ? 0 : now;
      let begun = null;
      const tick = (time) => {
        begun ??= time;
        const reached = Math.min(last, first + (time - begun) / per);
        draw(reached);
        if (reached >= last) stop(); else timer = requestAnimationFrame(tick);
      };
      const jump = () => {
        if (now >= last) { stop(); return; }
        draw(Math.floor(now) + 1);
        timer = setTimeout(jump, 900);
      };
      play.textContent = "❚❚";
      play.setAttribute("aria-label", "Pause");
      if (still.matches) {
        draw(Math.floor(first));
        timer = setTimeout(jump, 900);
      } else timer = requestAnimationFrame(tick);
    }
    play.addEventListener("click", () => (timer ? stop() : start()));
    slider.addEventListener("input", () => { stop(); draw(Number(slider.value)); });
    select.addEventListener("change", () => draw(now));
    root.querySelector(".points").addEventListener("pointermove", (event) => {
      const i = paths.indexOf(event.target);
      if (i < 0) return;
      const predicted = data.predicted[Math.round(now)][i];
      const true_class = data.y[i] < 0 ? "unknown" : data.classes[data.y[i]];
      showTip(`training point ${data.index[i]}${data.labeled[i] ? ", labeled" : ""}\n` +
        `true class: ${true_class}\npredicted: ${data.classes[predicted]}`,
        event.clientX, event.clientY);
    });
    root.querySelector(".points").addEventListener("pointerleave", hideTip);
    root.querySelector(".controls").hidden = last === 0;
    draw(last);
  }

  for (const box of document.querySelectorAll(".command")) {
    const button = box.querySelector("button"), code = box.querySelector("code");
    button.hidden = false;
    button.addEventListener("click", async () => {
      getSelection().selectAllChildren(code);
      try {
        await navigator.clipboard.writeText(code.textContent);
        button.textContent = "Copied";
      } catch {
        button.textContent = "Press Ctrl+C";
      }
      setTimeout(() => { button.textContent = "Copy"; }, 1500);
    });
  }
})();
