// Axes: from values to pixels, and where the ticks stand.

const LOG_FROM = 8;
const LOG_STEPS = [[1], [1, 2, 5], [1, 2, 3, 5, 7], [1, 2, 3, 4, 5, 6, 7, 8, 9]];  // the first that gives four ticks

// A scale from `low` to `high` onto pixels `from` to `to`; what lies beyond is drawn at the edge.
export function scale(low, high, from, to, log = false) {
  const f = log ? Math.log10 : (value) => value;
  const at = (value) => from + (f(value) - f(low)) / (f(high) - f(low)) * (to - from);
  return {
    low, high, log,
    at: (value) => at(Math.min(high, Math.max(low, value))),
    inside: (value) => value >= low && value <= high,
    ticks: ticks(low, high, log),
  };
}

// The scale that shows `inner` values with some room; `whole` for counts that start at nought.
export function roomyScale(inner, from, to, whole = false) {
  if (!inner.length) inner = [0, 1];
  let low = Math.min(...inner), high = Math.max(...inner);
  const log = low > 0 && high / low > LOG_FROM && !whole;
  if (log) { low /= 1.3; high *= 1.3; } else {
    const span = Math.max(high - low, 0.2 * Math.abs(high), 1e-9), middle = (high + low) / 2;
    [low, high] = [low >= 0 ? Math.max(0, middle - 0.58 * span) : middle - 0.58 * span, middle + 0.58 * span];
    if (whole) low = 0;
  }
  return scale(low, high, from, to, log);
}

export function ticks(low, high, log = false, wanted = 6) {
  const found = [];
  if (log) {
    for (const steps of LOG_STEPS) {
      found.length = 0;
      for (let e = Math.floor(Math.log10(low)); e <= Math.ceil(Math.log10(high)); e++)
        for (const s of steps) if (s * 10 ** e >= low && s * 10 ** e <= high) found.push(Number((s * 10 ** e).toPrecision(6)));
      if (found.length >= 4) break;
    }
    return found;
  }
  const raw = (high - low) / wanted, power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((s) => s * power).find((s) => s >= raw);
  for (let i = Math.ceil(low / step); i * step <= high; i++) found.push(Number((i * step).toPrecision(10)));
  return found;
}
