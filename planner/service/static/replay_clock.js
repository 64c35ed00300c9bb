// The clock of a replay: how fast it runs, what part of the run is in view, and how moments are written.

export const SPEEDS = [10, 20, 50, 100, 200, 500, 1000];
const STEPS_MS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 2e4, 3e4, 6e4, 12e4, 3e5, 6e5, 12e5, 36e5, 72e5, 216e5, 864e5];
const LEAST_MS = 20, AHEAD = 0.8, TICK_WIDTH = 70;

// A moment of the run in words, to `digits` of a second: "12.3 s", from ten minutes on "1:23:45".
export function clockText(ms, digits = 1) {
  if (ms < 6e5) return `${(ms / 1e3).toFixed(digits)} s`;
  const seconds = Math.floor(ms / 1e3), two = (value) => String(value).padStart(2, "0");
  const rest = digits ? (ms / 1e3 % 1).toFixed(digits).slice(1) : "";
  const hours = Math.floor(seconds / 3600), minutes = Math.floor(seconds / 60) % 60;
  return `${hours ? `${hours}:${two(minutes)}` : minutes}:${two(seconds % 60)}${rest}`;
}

// [moment in ms, words] of each tick of a window that is `width` pixels wide.
export function timeTicks(from, to, width) {
  const least = (to - from) / Math.max(1, width / TICK_WIDTH), step = STEPS_MS.find((ms) => ms >= least) ?? STEPS_MS.at(-1);
  const digits = step >= 1e3 ? 0 : step >= 100 ? 1 : step >= 10 ? 2 : 3, found = [];
  for (let k = Math.ceil(from / step); k * step <= to; k++) found.push([k * step, clockText(k * step, digits)]);
  return found;
}

export class Clock {
  // duration in ms; `stage` is what the lanes read: {from, to, now, ...}, kept up to date here.
  constructor(stage, duration) {
    this.stage = stage;
    this.duration = duration;
    this.playing = false;
    this.speed = 100;
    Object.assign(stage, { from: 0, to: duration, now: 0 });
  }

  get span() { return this.stage.to - this.stage.from; }

  // Go on by `elapsed` ms of the reader's time.
  tick(elapsed) {
    if (!this.playing) return;
    this.seek(this.stage.now + elapsed * this.speed, true);
    if (this.stage.now >= this.duration) this.playing = false;
  }

  play() {
    if (this.stage.now >= this.duration) this.seek(0);
    this.playing = true;
  }

  // Put the playhead at `ms`; the window moves along where it would leave it.
  seek(ms, follow = false) {
    const { stage } = this;
    stage.now = Math.min(this.duration, Math.max(0, ms));
    const edge = follow ? stage.from + AHEAD * this.span : stage.to;
    if (stage.now > edge) this.pan(stage.now - edge);
    else if (stage.now < stage.from) this.pan(stage.now - stage.from);
  }

  // Put the playhead at the end of [begin, end] (ms), with its beginning in view.
  reveal(begin, end) {
    this.seek(end);
    if (begin < this.stage.from || begin > this.stage.from + AHEAD * this.span) this.pan(begin - this.stage.from - (1 - AHEAD) / 2 * this.span);
  }

  pan(ms) {
    const { stage, span } = this;
    const from = Math.min(Math.max(0, this.duration - span), Math.max(0, stage.from + ms));
    [stage.from, stage.to] = [from, from + span];
  }

  // Show `factor` times less of the run, with the moment `around` where it is.
  zoom(factor, around = this.stage.now) {
    const { stage } = this, span = Math.min(this.duration, Math.max(Math.min(LEAST_MS, this.duration), this.span / factor));
    const share = Math.min(1, Math.max(0, (around - stage.from) / this.span));
    const from = Math.min(this.duration - span, Math.max(0, around - share * span));
    [stage.from, stage.to] = [from, from + span];
  }

  whole() { [this.stage.from, this.stage.to] = [0, this.duration]; }
}
