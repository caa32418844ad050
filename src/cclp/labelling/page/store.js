// The server's state, and changes of it: one at a time, none lost, none that overwrites another tab's.

import { ask, Lost, Refused } from "./common.js";

const AGAIN = 1000, UNFINISHED = 150, WAITING = 500, LATER = 1500, REFINED = 10_000; // milliseconds
const PENDING = "not sent yet";

export const store = { state: null, busy: false };
const listeners = [];
let timer = 0, polling = false, refinedUntil = 0;

export const onState = (listener) => listeners.push(listener);
export const pause = (time) => new Promise((done) => setTimeout(done, time));

// What the page says: "trouble" stays until it is over, "message" until the next one.
export const say = { message: () => {}, trouble: () => {} };

function take(state) {
  const before = store.state;
  if (before && before.place !== state.place) {
    say.trouble("Other data are labeled at this address now. Your labels are where they were; close this tab.");
    store.gone = true;
    throw new Refused(410, "other data");
  }
  if (before && state.version < before.version) return; // an answer that was overtaken
  store.state = state;
  if (state.problem && state.phase === "ready") say.trouble(state.problem);
  for (const listener of listeners) listener(state, before);
  const soon = state.phase !== "ready" ? WAITING : state.fresh === false ? UNFINISHED : ["running", "reading"].includes(state.training?.state) ? AGAIN
    : Date.now() < refinedUntil ? LATER : 0; // beliefs are refined some time after the last answer
  clearTimeout(timer);
  if (soon) timer = setTimeout(refresh, soon);
}

export async function refresh() {
  if (polling || store.busy || store.gone) return;
  polling = true;
  try {
    const state = await ask("api/state");
    say.trouble("");
    take(state);
  } catch (error) {
    if (error instanceof Lost) lost("");
    clearTimeout(timer);
    timer = setTimeout(refresh, AGAIN);
  } finally {
    polling = false;
  }
}

function lost(kept) {
  say.trouble(`No answer from cclp label.${kept ? ` ${kept} is kept and sent as soon as it answers.` : ""} If it has ended, start it again in the terminal: all earlier answers are on the disk.`);
}

// Change something; true if it is on the disk. What is refused is said, and nothing is changed.
export async function change(path, body, what) {
  if (store.busy || store.gone) {
    if (store.busy) say.message(`${what} was not taken: the one before is not saved yet.`);
    return false;
  }
  store.busy = true;
  refinedUntil = Date.now() + REFINED;
  document.body.classList.add("busy");
  const sent = { ...body, version: store.state.version, place: store.state.place };
  try {
    kept.set(PENDING, { path, sent, what });
    return await send(path, sent, what);
  } finally {
    kept.set(PENDING, null);
    store.busy = false;
    document.body.classList.remove("busy");
  }
}

async function send(path, sent, what) {
  for (;;) {
    try {
      const state = await ask(path, sent);
      say.trouble("");
      say.message("");
      take(state);
      return true;
    } catch (error) {
      if (error instanceof Refused) return await refused(error, what);
      if (!(error instanceof Lost)) throw error;
      lost(what);
    }
    const settled = await settle(path, sent, what);
    if (settled !== null) return settled;
  }
}

// After a request without an answer: true if it arrived, false if it must not be sent again, else null.
async function settle(path, sent, what) {
  let state;
  for (;;) {
    await pause(AGAIN);
    try {
      state = await ask("api/state");
      if (state.phase === "ready") break;
    } catch { /* still not there */ }
  }
  if (state.place === sent.place && state.version === sent.version) return null;
  take(state);
  say.trouble("");
  if (await isTaken(path, sent)) return true;
  say.message(`Labels were changed in another tab meanwhile. ${what} was not taken: look again.`);
  return false;
}

// Whether a change that was sent has arrived, as far as can be seen.
async function isTaken(path, { samples, class: value, version }) {
  if (path !== "api/decide") return store.state.version === version + 1;
  return (await ask(`api/sample?sample=${samples[0]}`)).given === value;
}

async function refused(error, what) {
  if (error.status === 410) {
    say.trouble("Other data are labeled at this address now. Your labels are where they were; close this tab.");
    store.gone = true;
  } else if (error.status === 409) {
    const state = await ask("api/state");
    take(state);
    say.message(`Labels were changed in another tab. They are shown now; ${what} was not taken: give it again.`);
  } else say.message(`${what} was not taken: ${error.message}`);
  return false;
}

// What this tab had not sent when it was closed or loaded again.
export async function resume() {
  const late = kept.get(PENDING, null);
  kept.set(PENDING, null);
  if (!late) return;
  const { version, place, ...body } = late.sent;
  if (version === store.state.version) await change(late.path, body, late.what);
  else if (!await isTaken(late.path, late.sent)) say.message(`Labels were changed in another tab. ${late.what} was not taken: give it again.`);
}

// Whether something else is believed now.
export const isNews = (state, before) => state.version !== before.version || state.fresh !== before.fresh
  || state.beliefs_version !== before.beliefs_version;

// Bytes of the server; what fails is a sentence, as it is for all else.
export async function bytes(path) {
  const answer = await fetch(path).catch(() => { throw new Lost("No answer from cclp label: nothing was changed."); });
  if (!answer.ok) throw new Refused(answer.status, "cclp label is busy: try it again.");
  return new Uint8Array(await answer.arrayBuffer());
}

// Samples that an undo or redo has changed.
export async function changedBy(act) {
  const before = await bytes("api/given");
  if (!await act()) return null;
  const after = await bytes("api/given"), found = [];
  for (let i = 0; i < after.length; i++) if (before[i] !== after[i]) found.push(i);
  return found;
}

// What is known of a sample and does not change: its file, text or fields.
const known = new Map();
export function sampleInfo(sample) {
  if (!known.has(sample)) {
    if (known.size > 5000) known.clear();
    const found = ask(`api/sample?sample=${sample}`);
    found.catch(() => known.delete(sample));
    known.set(sample, found);
  }
  return known.get(sample);
}

export const picture = (sample, size) => `picture?sample=${sample}&size=${size}&of=${store.state.place}`;

// What a reload of the tab keeps; without it if the browser has no room.
export const kept = {
  get: (name, other) => JSON.parse(sessionStorage.getItem(`cclp label ${store.state.place} ${name}`) ?? "null") ?? other,
  set: (name, value) => {
    try {
      sessionStorage.setItem(`cclp label ${store.state.place} ${name}`, JSON.stringify(value));
    } catch { /* a lasso around a million samples */ }
  },
};
