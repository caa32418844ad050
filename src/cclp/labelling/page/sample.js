// A sample as a person sees it: large, or small in a page of many.

import { element } from "./common.js";
import { picture, sampleInfo, store } from "./store.js";

const LARGE = 1024, SMALL = 160; // pixels
const ENLARGED = 36; // times at most: beyond, a person sees squares and no shape
const SHORT = 140, FEW = 5; // characters of a text, fields of a row

function image(sample, size, alt) {
  const made = element("img");
  made.addEventListener("load", () => {
    made.style.setProperty("--most", `${ENLARGED * Math.max(made.naturalWidth, made.naturalHeight)}px`);
  });
  Object.assign(made, { src: picture(sample, size), alt, draggable: false });
  return made;
}

export function nameOf(info) {
  return info.file ?? `${store.state.kind === "images" ? "image" : "row"} ${info.row ?? info.sample}`; // as in labels.csv
}

// All of a sample; ready to be shown when the promise is fulfilled.
export async function large(sample) {
  const info = await sampleInfo(sample), parts = [];
  if (store.state.kind === "images") {
    const made = image(sample, LARGE, `sample ${nameOf(info)}`);
    await made.decode().catch(() => {});
    parts.push(made.naturalWidth ? made : element("p", "This picture cannot be read any more.", "note"));
  }
  if (info.text !== null) parts.push(element("p", info.text, info.text.length > 600 ? "text long" : "text"));
  if (info.fields.length) parts.push(table(info.fields));
  return { info, parts };
}

function table(fields) {
  const list = element("dl", undefined, fields.length > 14 ? "fields many" : "fields");
  for (const [name, value] of fields) {
    const pair = element("div");
    pair.append(element("dt", name), element("dd", value === "" ? "—" : value));
    list.append(pair);
  }
  return list;
}

export function small(sample) {
  const box = element("span", undefined, `small ${store.state.kind}`);
  if (store.state.kind === "images") box.append(image(sample, SMALL, `sample ${sample}`));
  else sampleInfo(sample).then((info) => { box.textContent = inShort(info); box.title = nameOf(info); }, () => {});
  return box;
}

function inShort({ text, fields }) {
  if (text !== null) return text.length > SHORT ? `${text.slice(0, SHORT)}…` : text;
  return fields.slice(0, FEW).map(([name, value]) => `${name} ${value}`).join(" · ");
}
