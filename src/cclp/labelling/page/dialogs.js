// What is asked beside: the name of a class, how to train, where to export.

import { ask, byId, element } from "./common.js";
import { mark } from "./marks.js";
import { change, refresh, say, store } from "./store.js";

const MOST = 8; // names that are offered

export const isOpen = () => document.querySelector("dialog[open]") !== null;

export function followDialogs(answer) {
  for (const button of document.querySelectorAll("[data-close]")) {
    button.addEventListener("click", () => button.closest("dialog").close());
  }
  byId("help-open").addEventListener("click", openHelp);
  byId("train-open").addEventListener("click", () => open("train"));
  byId("export-open").addEventListener("click", () => { byId("export-done").textContent = ""; open("export"); });
  byId("classes-open").addEventListener("click", () => openNames());
  byId("name-input").addEventListener("input", drawMatches);
  byId("name-input").addEventListener("keydown", moveMatch);
  onSubmit("name", async () => { await name(answer); });
  onSubmit("train", train);
  onSubmit("export", exportLabels);
  byId("training").addEventListener("click", async (event) => {
    if (event.target.id !== "train-stop") return;
    await ask("api/stop", { place: store.state.place }).catch((error) => say.message(error.message));
    refresh();
  });
}

export function openHelp() {
  byId("folder").textContent = store.state?.folder ?? "the folder of labels";
  byId("help-dialog").showModal();
}

function open(what) {
  byId(`${what}-trouble`).textContent = "";
  byId(`${what}-dialog`).showModal();
}

// A form whose mistakes are said in it, and that closes when it is done if it says so.
function onSubmit(what, act) {
  byId(`${what}-dialog`).querySelector("form").addEventListener("submit", async (event) => {
    event.preventDefault();
    byId(`${what}-trouble`).textContent = "";
    byId(`${what}-go`).disabled = true;
    try {
      await act();
    } catch (error) {
      byId(`${what}-trouble`).textContent = error.message;
    } finally {
      byId(`${what}-go`).disabled = false;
    }
  });
}

// -- names ---------------------------------------------------------------------------------------

let chosen = -1;

export function openNames(first = "") {
  byId("name-input").value = first;
  byId("manage").hidden = !store.state.classes.length;
  drawRows();
  open("name");
  byId("name-input").focus();
  drawMatches();
}

function matches() {
  const typed = byId("name-input").value.trim().toLowerCase();
  if (!typed) return [];
  return store.state.classes.filter((c) => c.name.toLowerCase().includes(typed))
    .sort((a, b) => a.name.toLowerCase().indexOf(typed) - b.name.toLowerCase().indexOf(typed)).slice(0, MOST);
}

function drawMatches() {
  const found = matches(), typed = byId("name-input").value.trim();
  const same = found.findIndex((c) => c.name === typed);
  chosen = same;
  byId("name-matches").replaceChildren(...found.map((cls, i) => {
    const row = element("li");
    row.classList.toggle("at", i === chosen);
    row.append(mark(cls.id), cls.name);
    row.addEventListener("click", () => { byId("name-input").value = cls.name; byId("name-dialog").querySelector("form").requestSubmit(); });
    return row;
  }));
  byId("name-go").textContent = !typed || same >= 0 ? "Label" : "Label with this new class";
}

function moveMatch(event) {
  const rows = [...byId("name-matches").children];
  if (!rows.length || !["ArrowDown", "ArrowUp"].includes(event.key)) return;
  event.preventDefault();
  chosen = (chosen + (event.key === "ArrowDown" ? 1 : -1) + rows.length) % rows.length;
  rows.forEach((row, i) => row.classList.toggle("at", i === chosen));
}

async function name(answer) {
  const picked = matches()[chosen], typed = byId("name-input").value.trim();
  if (!picked && !typed) throw new Error("Type a name.");
  let id = picked?.id ?? store.state.classes.find((c) => c.name === typed)?.id;
  if (id === undefined) {
    await changeClasses({ do: "add", name: typed }, `The class ${typed}`);
    id = store.state.classes.find((c) => c.name === typed)?.id;
    if (id === undefined) throw new Error("The class was not made.");
  }
  byId("name-dialog").close();
  await answer(id);
}

async function changeClasses(body, what) {
  let said = "";
  const before = say.message;
  say.message = (text) => { said = text; };
  try {
    if (!await change("api/classes", body, what)) throw new Error(said);
  } finally {
    say.message = before;
  }
}

function drawRows() {
  const { classes } = store.state;
  byId("manage-rows").replaceChildren(...classes.map((cls) => {
    const row = element("tr"), head = element("th"), input = element("input"), cell = element("td"), into = element("select");
    head.append(element("kbd", cls.key || "–"), mark(cls.id));
    Object.assign(input, { value: cls.name, maxLength: 200 });
    input.setAttribute("aria-label", `New name of ${cls.name}`);
    into.setAttribute("aria-label", `Merge ${cls.name} into`);
    into.append(new Option("merge into…", ""), ...classes.filter((c) => c !== cls).map((c) => new Option(c.name, c.id)));
    input.addEventListener("keydown", (event) => { if (event.key === "Enter") { event.preventDefault(); input.blur(); } });
    input.addEventListener("change", () => manage({ do: "rename", class: cls.id, name: input.value.trim() }, `The name ${input.value}`));
    into.addEventListener("change", () => { if (into.value) manage({ do: "merge", class: cls.id, into: Number(into.value) }, "The merge"); });
    cell.append(input);
    row.append(head, cell, element("td"));
    row.lastChild.append(into);
    return row;
  }));
}

async function manage(body, what) {
  byId("name-trouble").textContent = "";
  try {
    await changeClasses(body, what);
  } catch (error) {
    byId("name-trouble").textContent = error.message;
  }
  drawRows();
  drawMatches();
}

// -- training and export -------------------------------------------------------------------------

async function train() {
  const minutes = byId("minutes").value === "" ? null : Number(byId("minutes").value);
  await ask("api/train", { minutes, place: store.state.place });
  byId("train-dialog").close();
  refresh();
}

async function exportLabels() {
  const kind = document.querySelector("[name=kind]:checked").value, to = byId("export-to").value.trim() || null;
  byId("export-done").textContent = "";
  const { path } = await ask("api/export", { kind, to, place: store.state.place });
  byId("export-done").textContent = `Written: ${path}`;
}
