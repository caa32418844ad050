// One sample at a time: what is asked, what its neighbours say. Answers lead to the next one.

import { ask, byId, element } from "./common.js";
import { chip, classColour, mark, percent } from "./marks.js";
import { large, nameOf, small } from "./sample.js";
import { change, isNews, kept, pause, say, store } from "./store.js";

const AHEAD = 4, PATIENCE = 150; // questions that are prefetched; milliseconds for a fresher one
const SEEN = 600; // milliseconds
const CANDIDATES = 3, MOST_SKIPPED = 300;
const WHY = {
  typical: () => "typical of many samples",
  influential: ({ followers }) => (followers > 1 ? `${followers.toLocaleString("en")} samples follow the answer` : "its class is open"),
  drawn: () => "drawn at random: how good are the answers of the graph?",
  disagreement: () => "its neighbours contradict its label",
  chosen: () => "chosen by you",
};

export class AskView {
  constructor() {
    this.source = "ask"; // or "disagree"
    this.current = null;
    this.next = []; // prefetched, best first
    this.loading = null; // the fetch that is under way
    this.done = new Set(); // samples that were answered on this page, wherever
    this.seen = new Set(); // contradicted labels that the user has looked at
    this.turn = 0;
    this.turned = 0; // when the first candidate has become another one
  }

  get skipped() {
    return kept.get("skipped", []);
  }

  // Show the question that was shown before the page was loaded again, or the best one.
  async open(source, sample = null) {
    if (source !== this.source) Object.assign(this, { next: [], loading: null, current: null });
    this.source = source;
    byId("ask").hidden = false;
    if (sample !== null) await this.pick(sample);
    else if (this.current && !this.answered(this.current)) this.draw();
    else await this.advance(null);
  }

  close() {
    byId("ask").hidden = true;
    this.turn++;
  }

  answered(question) {
    return this.done.has(question.sample) || (this.source === "ask" && question.given !== null && question.given !== undefined);
  }

  async pick(sample) {
    const turn = ++this.turn;
    const question = await ask(`api/question?sample=${sample}`);
    const shown = await this.prepare(question);
    if (turn === this.turn) this.show(shown);
  }

  async prepare(question) {
    const found = await large(question.sample);
    return { ...question, given: question.given ?? (await ask(`api/sample?sample=${question.sample}`)).given, ...found };
  }

  async fetch(beside, count = AHEAD) {
    if (this.source === "disagree") {
      const found = await ask(`api/disagreements?count=${count + this.seen.size + 1}`);
      return found.filter(({ sample }) => sample !== beside && !this.seen.has(sample)).slice(0, count);
    }
    const exclude = [...this.skipped, ...(beside === null ? [] : [beside])];
    return ask(`api/questions?count=${count}&exclude=${exclude.join()}`);
  }

  // Fetch the best questions; one fetch at a time, as fast answers would queue up more and more.
  load(beside) {
    if (this.loading) return this.loading;
    const { source } = this;
    const loading = this.fetch(beside).then((questions) => Promise.all(questions.map((q) => this.prepare(q))))
      .then((questions) => { if (this.source === source) this.next = questions; })
      .catch((error) => say.message(error.message))
      .finally(() => { if (this.loading === loading) this.loading = null; });
    this.loading = loading;
    return loading;
  }

  // The first of those that were fetched that nobody has answered since.
  take(done) {
    const past = this.source === "ask" ? new Set([...this.done, ...this.skipped]) : this.seen;
    this.next = this.next.filter((q) => q.sample !== done && q.sample !== this.current?.sample && !past.has(q.sample));
    return this.next.shift() ?? null;
  }

  // The next question: the best now, or one that was fetched before the last answer if that is not quick.
  async advance(done) {
    const turn = ++this.turn, late = this.loading !== null;
    const loading = this.load(done);
    await (this.next.some((q) => q.sample !== done) ? Promise.race([loading, pause(PATIENCE)]) : loading);
    if (turn !== this.turn) return;
    let question = this.take(done);
    for (let again = late ? 2 : 1; !question && again > 0; again--) {
      await this.load(done);
      if (turn !== this.turn) return;
      question = this.take(done);
    }
    this.show(question);
  }

  show(question) {
    this.current = question;
    kept.set("sample", question?.sample ?? null);
    this.draw();
    if (question && !this.next.length && this.source === "ask") this.load(question.sample);
  }

  draw() {
    const question = this.current, { state } = store;
    byId("ask").classList.toggle("empty", !question);
    byId("what").dataset.sample = question?.sample ?? "";
    if (!question) {
      byId("what").replaceChildren(element("p", this.nothing(), "done"));
      byId("candidates").replaceChildren();
      for (const id of ["file", "why"]) byId(id).textContent = "";
      return;
    }
    byId("what").replaceChildren(...question.parts);
    byId("what").className = `what ${state.kind}`;
    byId("file").textContent = nameOf(question.info);
    byId("file").title = nameOf(question.info);
    this.drawWhy();
    this.drawCandidates();
  }

  drawWhy() {
    const { state } = store, question = this.current, parts = [];
    if (question.given !== null && question.given !== undefined) parts.push("now ", chip(state, question.given), " · ");
    parts.push(WHY[question.why]?.(question) ?? question.why);
    byId("why").replaceChildren(...parts);
  }

  nothing() {
    if (this.source === "disagree") return "No label is contradicted by its neighbours. Go on with q.";
    return this.skipped.length ? "Nothing else is left to ask but what you have skipped: press s to see it again."
      : "Every sample has an answer. Export your labels, or train a network.";
  }

  candidates() {
    const { classes } = store.state, { probabilities, nearest } = this.current;
    const found = classes.map((cls) => ({
      cls, probability: probabilities[cls.id] ?? 0,
      samples: nearest.find((n) => n.class === cls.id)?.samples ?? [],
    }));
    return found.sort((a, b) => b.probability - a.probability).slice(0, CANDIDATES);
  }

  drawCandidates() {
    const list = this.candidates(), certain = list.length > 0 && store.state.labeled > 0;
    byId("candidates").replaceChildren(...(certain ? list.map((c, i) => this.candidate(c, i === 0)) : [teach()]));
  }

  candidate({ cls, probability, samples }, first) {
    const card = element("button", undefined, "candidate"), head = element("span", undefined, "head");
    const bar = element("span", undefined, "bar-of"), row = element("span", undefined, "near");
    card.type = "button";
    card.title = `It is ${cls.name}`;
    card.dataset.answer = cls.id;
    bar.style.setProperty("--part", probability);
    bar.style.setProperty("--colour", classColour(cls.id));
    head.append(element("kbd", cls.key || "n"), mark(cls.id), element("b", cls.name), element("span", percent(probability), "share"));
    if (first) head.append(element("kbd", "Enter"));
    row.append(...(samples.length ? samples.map(small) : [element("span", "no label yet", "soft")]));
    card.append(head, bar, row);
    return card;
  }

  // After any change: what is known of the sample that is shown.
  async onState(state, before) {
    if (!this.current || byId("ask").hidden || !before || store.busy) return;
    if (!isNews(state, before) || this.source === "disagree") return; // there: without its own label
    const { sample } = this.current, turn = this.turn;
    const [question, { given }] = await Promise.all([ask(`api/question?sample=${sample}`), ask(`api/sample?sample=${sample}`)]);
    if (turn !== this.turn || this.current?.sample !== sample) return;
    const first = this.candidates()[0]?.cls.id;
    Object.assign(this.current, { probabilities: question.probabilities, nearest: question.nearest, given });
    if (this.candidates()[0]?.cls.id !== first) this.turned = Date.now();
    this.drawWhy();
    this.drawCandidates();
  }

  async answer(value, what) {
    if (!this.current) return null;
    const { sample } = this.current;
    if (!await change("api/decide", { samples: [sample], class: value }, what)) {
      await this.pick(sample);
      return null;
    }
    this.done.add(sample);
    this.seen.add(sample);
    await this.advance(sample);
    return [sample];
  }

  async skip() {
    if (store.busy) return;
    if (!this.current) {
      kept.set("skipped", []);
      await this.advance(null);
      return;
    }
    const { sample } = this.current;
    if (this.source === "disagree") this.seen.add(sample);
    else kept.set("skipped", [...this.skipped, sample].slice(-MOST_SKIPPED));
    await this.advance(sample);
  }

  // What Enter says yes to; nothing if it has become another class under the user's finger.
  suggestion() {
    if (Date.now() - this.turned < SEEN) return null;
    const [first] = this.current && store.state.labeled ? this.candidates() : [];
    return first && first.probability > 0 ? first.cls.id : null;
  }
}

function teach() {
  const box = element("div", undefined, "teach");
  box.append(element("p", "What is it?", "big"), "Press ", element("kbd", "n"), ", type the name of its class, and press ",
    element("kbd", "Enter"), ". The class gets a key of its own: from then on, one key is one answer.");
  return box;
}
