// Sliders; one of logarithms counts from 0 to 100 between two values.

export function makeLogarithmic(input) {
  Object.assign(input.dataset, { low: input.min, high: input.max });
  Object.assign(input, { min: 0, max: 100, step: 1 });
}

export function fromSlider({ value, dataset: { log, low, high } }) {
  return log ? Number((low * (high / low) ** (value / 100)).toPrecision(2)) : Number(value);
}

export function toSlider({ dataset: { log, low, high } }, value) {
  return log ? 100 * Math.log(value / low) / Math.log(high / low) : value;
}
