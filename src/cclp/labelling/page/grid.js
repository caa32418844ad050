// A page of samples with ticks: those the graph holds for one class, or those that a search has found.

import { ask, byId, element } from "./common.js";
import { chip, mark, named, percent } from "./marks.js";
import { nameOf, small } from "./sample.js";
import { change, kept, sampleInfo, say, store } from "./store.js";

const FEWEST = 12, MOST = 60, FOUND = 56; // tiles
const SEEN = 500; // milliseconds before a page can be confirmed: a second Enter must not take the next one
const IMAGE = [116, 138], TEXT = [278, 86]; // pixels of a tile with its margin
const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

export class GridView {
  constructor(openSample, confirmed) {
    Object.assign(this, { openSample, confirmed });
    this.mode = "confirm"; // or "search"
    this.tiles = []; // {sample, note, ticked, box}
    this.at = 0;
    this.left = {}; // of each class: samples that were un-ticked, and are not shown again
    this.turn = 0;
    byId("tiles").addEventListener("click", (event) => {
      const box = event.target.closest(".tile");
      if (box) this.toggle(this.tiles.findIndex((tile) => tile.box === box));
    });
    byId("tiles").addEventListener("dblclick", (event) => {
      const box = event.target.closest(".tile");
      if (box && this.mode === "search") this.openSample(this.tiles.find((tile) => tile.box === box).sample);
    });
    byId("grid-go").addEventListener("click", () => this.enter());
    byId("words").addEventListener("input", () => this.search());
    byId("words").addEventListener("keydown", (event) => {
      if (event.key === "Enter" || event.key === "ArrowDown") { event.preventDefault(); event.stopPropagation(); byId("tiles").focus(); }
      if (event.key === "Escape") { event.preventDefault(); byId("tiles").focus(); }
    });
  }

  // As many tiles as can be seen at once.
  get count() {
    const [width, height] = store.state.kind === "images" ? IMAGE : TEXT, box = byId("tiles");
    const fitting = Math.floor((box.clientWidth + 2) / width) * Math.floor((box.clientHeight + 2) / height);
    return Math.min(MOST, Math.max(FEWEST, fitting || 0));
  }

  async open(mode) {
    this.mode = mode;
    byId("grid").hidden = false;
    byId("words").hidden = mode !== "search";
    byId("tiles").classList.toggle("rows", store.state.kind !== "images");
    if (mode === "search") {
      byId("words").focus();
      byId("words").select();
      await this.search();
      return;
    }
    await this.turnTo(this.most());
  }

  close() {
    byId("grid").hidden = true;
    this.turn++;
  }

  // The class with the most samples to confirm, or the one of before.
  most() {
    const { classes } = store.state, before = kept.get("page", null);
    if (classes.some((c) => c.id === before && c.propagated > c.count)) return before;
    return classes.toSorted((a, b) => (b.propagated - b.count) - (a.propagated - a.count))[0]?.id ?? null;
  }

  async turnTo(id) {
    const turn = ++this.turn, same = this.of === id;
    const wrong = new Set(same ? this.tiles.filter((tile) => !tile.ticked).map((tile) => tile.sample) : []);
    this.of = id;
    kept.set("page", id);
    if (id === null) return this.fill([], "Label a sample of each class first.");
    const left = this.left[id] ?? new Set();
    const found = await ask(`api/believed?class=${id}&count=${this.count + left.size}&skip=0`);
    if (turn !== this.turn) return;
    this.fill(found.filter(({ sample }) => !left.has(sample)).slice(0, this.count).map(({ sample, probability }) => ({ sample, note: percent(probability), ticked: !wrong.has(sample) })),
      left.size ? "Nothing else is held for this class but what you have un-ticked. Turn to another class by its key."
        : "No more sample is held for this class. Turn to another class by its key.");
  }

  async search() {
    const words = byId("words").value.trim(), turn = ++this.turn;
    kept.set("words", words);
    this.of = undefined; // what is found is of no class, and un-ticked
    if (!words) return this.fill([], "Type a part of a file name, of a cell or text, or a class. Then ↓ goes to what is found.");
    try {
      const found = await ask(`api/search?words=${encodeURIComponent(words)}&count=${FOUND}`);
      if (turn !== this.turn) return;
      const infos = await Promise.all(found.map((sample) => ask(`api/sample?sample=${sample}`)));
      if (turn === this.turn) this.fill(infos.map((info) => ({ sample: info.sample, note: nameOf(info), given: info.given, ticked: false })), "Nothing is found.");
    } catch (error) {
      say.message(error.message);
    }
  }

  fill(tiles, nothing) {
    this.tiles = tiles.map((tile) => ({ ...tile, box: this.box(tile) }));
    this.at = 0;
    this.filled = Date.now();
    setTimeout(() => this.draw(), SEEN);
    byId("tiles").replaceChildren(...(tiles.length ? this.tiles.map((tile) => tile.box) : [element("p", nothing, "done")]));
    this.draw();
  }

  box({ sample, note, given }) {
    const box = element("div", undefined, "tile"), foot = element("span", note, "note");
    box.setAttribute("role", "option");
    box.id = `tile-${sample}`;
    box.dataset.sample = sample;
    if (given !== undefined && given !== null) foot.prepend(chip(store.state, given), " ");
    box.append(small(sample), foot);
    if (store.state.kind === "images") sampleInfo(sample).then((info) => { box.title = nameOf(info); }, () => {});
    return box;
  }

  draw() {
    const { state } = store, ticked = this.ticked().length;
    this.tiles.forEach((tile, i) => {
      tile.box.classList.toggle("off", !tile.ticked && this.mode === "confirm");
      tile.box.classList.toggle("on", tile.ticked && this.mode === "search");
      tile.box.classList.toggle("at", i === this.at);
      tile.box.setAttribute("aria-selected", String(tile.ticked));
    });
    const active = this.tiles[this.at];
    byId("tiles").setAttribute("aria-activedescendant", active ? active.box.id : "");
    const confirm = this.mode === "confirm", cls = state.classes.find((c) => c.id === this.of);
    byId("grid-title").replaceChildren(...(confirm ? (cls ? ["All of these: ", mark(cls.id), cls.name] : ["Confirm"]) : []));
    byId("grid-note").textContent = !this.tiles.length ? "" : confirm
      ? "Un-tick the wrong ones: arrows and Space, or click. Enter confirms."
      : `${this.tiles.length === FOUND ? "first " : ""}${this.tiles.length} found. Space or click ticks, a class's key labels, Enter opens.`;
    byId("grid-go").hidden = !this.tiles.length;
    byId("grid-go").textContent = confirm ? `Confirm ${ticked} ⏎` : "Open ⏎";
    byId("grid-go").disabled = confirm && !(ticked && this.isSeen);
  }

  get isSeen() {
    return Date.now() - this.filled >= SEEN;
  }

  ticked() {
    return this.tiles.filter((tile) => tile.ticked);
  }

  toggle(index) {
    if (!this.tiles[index]) return;
    this.tiles[index].ticked = !this.tiles[index].ticked;
    this.at = index;
    this.draw();
  }

  // True if the key was meant for this view.
  key(event) {
    const by = ARROWS[event.key];
    if (by && this.tiles.length) {
      const first = this.tiles[0].box.offsetTop;
      const columns = this.tiles.filter((tile) => tile.box.offsetTop === first).length;
      this.at = Math.min(this.tiles.length - 1, Math.max(0, this.at + by[0] + by[1] * columns));
      this.tiles[this.at].box.scrollIntoView({ block: "nearest" });
      this.draw();
    } else if (event.key === " ") this.toggle(this.at);
    else if (event.key === "Enter") this.enter();
    else if (this.mode === "confirm" && event.key.length === 1 && this.classOf(event.key) !== null) this.turnTo(this.classOf(event.key));
    else return false;
    return true;
  }

  classOf(key) {
    return store.state.classes.find((c) => c.key === key)?.id ?? null;
  }

  async enter() {
    if (!this.tiles.length) return;
    if (this.mode === "search") this.openSample(this.tiles[this.at].sample);
    else if (this.ticked().length && this.isSeen) await this.confirm().catch((error) => say.message(error.message));
  }

  async confirm() {
    const samples = this.ticked().map((tile) => tile.sample);
    const left = this.tiles.filter((tile) => !tile.ticked).map((tile) => tile.sample);
    const name = named(store.state, this.of);
    if (!await change("api/decide", { samples, class: this.of }, `The page of ${name}`)) {
      const { of } = this;
      if (store.state.classes.some((c) => c.id === of)) await this.turnTo(of); // without what another tab has labeled
      return;
    }
    this.left[this.of] = new Set([...(this.left[this.of] ?? []), ...left]);
    this.confirmed(samples, this.of);
    await this.turnTo(this.of);
    say.message(`${samples.length} confirmed as ${name}.${left.length ? ` ${left.length} left as they were.` : ""}`);
  }

  // A class for what is ticked, or for the sample under the frame.
  async answer(value, what) {
    if (this.mode === "confirm") return null;
    const chosen = this.ticked().length ? this.ticked() : this.tiles.slice(this.at, this.at + 1);
    const samples = chosen.map((tile) => tile.sample), { at } = this;
    if (!samples.length || !await change("api/decide", { samples, class: value }, what)) return null;
    await this.search();
    this.at = Math.min(at, this.tiles.length - 1);
    this.draw();
    return samples;
  }

  async onState(state, before) {
    if (byId("grid").hidden || !before || store.busy || state.version === before.version) return;
    if (this.mode === "confirm") await this.turnTo(state.classes.some((c) => c.id === this.of) ? this.of : this.most());
  }
}
