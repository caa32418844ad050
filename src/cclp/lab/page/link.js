// A situation as the part of the address after #, so that it can be shared: JSON in base64url.

const DIGITS = 1e4;

export function toLink(situation) {
  const text = JSON.stringify(situation, (key, value) =>
    typeof value === "number" && !Number.isInteger(value) ? Math.round(value * DIGITS) / DIGITS : value);
  return btoa(text).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

export function fromLink(hash) {
  if (hash.length < 2) return {};
  try {
    return Object(JSON.parse(atob(hash.slice(1).replaceAll("-", "+").replaceAll("_", "/"))));
  } catch {
    throw new Error("This link cannot be read.");
  }
}
