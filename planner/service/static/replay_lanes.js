// One run of a replay on a canvas: a lane per replica, drawn in tiles that are kept until the view changes scale.

import { NEVER, upper } from "./replay_run.js";
import { hatched, palette } from "./replay_colours.js";
import { timeTicks } from "./replay_clock.js";

const TILE = 160, MAX_TILES = 60, BUDGET_MS = 5;  // width of a tile in CSS pixels; what a frame may spend on new ones
const AXIS = 24, MARKS = 16, LEAST_LANE = 22, HATCH_FROM = 5;
const FONT = "11px system-ui, sans-serif";

export class Lanes {
  // stage: {from, to: the window in ms, now: the playhead in ms, laneScale, scrollY, rows, peakWaiting, marked}, shared
  // by the runs that are shown together.
  constructor(canvas, run, stage) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d", { alpha: false });
    this.run = run;
    this.stage = stage;
    this.tiles = new Map();
    this.selected = -1;
    this.resize();
  }

  resize() {
    this.ratio = Math.min(2, window.devicePixelRatio || 1);
    this.width = Math.max(120, this.canvas.clientWidth);
    this.height = Math.max(120, this.canvas.clientHeight);
    this.canvas.width = Math.round(this.width * this.ratio);
    this.canvas.height = Math.round(this.height * this.ratio);
    this.gutter = this.width < 420 ? 46 : 76;
    this.colours = palette(this.run.sources);
    this.hatches = hatched(this.context, this.colours, this.ratio);
    this.tiles.clear();
    this.overview = null;
  }

  // -- where things are -----------------------------------------------------------------------------------------

  get top() { return this.stage.marked ? MARKS : 0; }
  get body() { return this.height - AXIS - this.top; }
  get laneHeight() { return Math.max(LEAST_LANE, this.body / this.run.lanes.length) * this.stage.laneScale; }
  get contentHeight() { return this.laneHeight * this.run.lanes.length; }
  get plotWidth() { return this.width - this.gutter; }
  get pxPerMs() { return this.plotWidth / (this.stage.to - this.stage.from); }
  strip(lane) { return Math.max(5, Math.min(26, lane * 0.2)); }
  rowHeight(lane) { return (lane - this.strip(lane) - 5) / this.stage.rows; }
  x(t) { return this.gutter + (t - this.stage.from) * this.pxPerMs; }
  time(x) { return this.stage.from + (x - this.gutter) / this.pxPerMs; }
  rowTop(lane, row) { return lane - 2 - (row + 1) * this.rowHeight(lane); }  // from the lane's top; row 0 is at its foot

  // The request under a point of the canvas, -1: none.
  requestAt(x, y) {
    if (x < this.gutter) return -1;
    const t = this.time(x), slack = 1.5 / this.pxPerMs;
    if (y < this.top) return this.nearestMark(t, 5 / this.pxPerMs);
    const lane = this.laneHeight, at = y - this.top + this.stage.scrollY, replica = Math.floor(at / lane);
    if (replica >= this.run.lanes.length || y > this.height - AXIS) return -1;
    const found = this.run.lanes[replica], row = (lane - 2 - (at - replica * lane)) / this.rowHeight(lane);
    const [from, to] = found.between(t - slack, t + slack);
    let best = -1, least = Math.max(0.5, 3 / this.rowHeight(lane));
    for (let k = from; k < to; k++) {
      const away = Math.abs(found.row[k] + 0.5 - row);
      if (found.row[k] >= 0 && found.shownFrom[k] <= t + slack && found.ends[k] >= t - slack && away <= least) [best, least] = [found.indexes[k], away];
    }
    return best;
  }
  nearestMark(t, slack) {
    const { times, indexes } = this.run.unserved;
    const k = upper(times, t);
    const near = [k - 1, k].filter((at) => at >= 0 && at < times.length && Math.abs(times[at] - t) <= slack);
    near.sort((a, b) => Math.abs(times[a] - t) - Math.abs(times[b] - t));
    return near.length ? indexes[near[0]] : -1;
  }

  // Where a request's bar is on the canvas, null where it has none in view.
  place(i) {
    const replica = this.run.laneOf(i);
    if (replica < 0) return { x: this.x(this.run.arrival[i]), y: 2, width: 1, height: MARKS - 4 };
    const found = this.run.lanes[replica], k = found.position[i];
    if (k < 0 || found.row[k] < 0) return null;
    const lane = this.laneHeight, x = this.x(found.shownFrom[k]);
    const y = this.top - this.stage.scrollY + replica * lane + this.rowTop(lane, found.row[k]);
    return { x, y, width: this.x(found.ends[k]) - x, height: this.rowHeight(lane) };
  }

  // -- a frame --------------------------------------------------------------------------------------------------

  // Draw what the stage shows now; false where tiles are still missing, so that another frame is needed.
  draw() {
    const { context: c, colours, width, height, gutter, ratio } = this;
    c.setTransform(ratio, 0, 0, ratio, 0, 0);
    c.fillStyle = colours.paper;
    c.fillRect(0, 0, width, height);
    c.save();
    c.beginPath();
    c.rect(gutter, 0, this.plotWidth, height - AXIS);
    c.clip();
    const complete = this.drawTiles();
    this.drawMarks();
    this.drawFuture();
    c.restore();
    this.drawAxis();
    this.drawGutter();
    this.drawSelected();
    return complete;
  }

  drawTiles() {
    const { context: c, stage } = this, scale = this.pxPerMs, begin = performance.now();
    const view = `${scale.toPrecision(9)} ${stage.scrollY} ${stage.laneScale} ${stage.rows} ${stage.marked}`;
    if (view !== this.view) { this.keepOverview(); this.tiles.clear(); this.view = view; }
    const offset = stage.from * scale, first = Math.floor(offset / TILE), last = Math.floor((offset + this.plotWidth) / TILE);
    let complete = true;
    for (let k = first; k <= last; k++) {
      let tile = this.tiles.get(k);
      if (!tile && (performance.now() - begin < BUDGET_MS)) tile = this.renderTile(k);
      const x = Math.round((this.gutter + k * TILE - offset) * this.ratio) / this.ratio;
      if (tile) c.drawImage(tile, x, this.top, TILE, this.body);
      else { complete = false; this.drawStale(k, x); }
    }
    // What comes next is made ready while there is time.
    for (let k = last + 1; complete && k <= last + 2; k++) {
      if (!this.tiles.has(k) && k * TILE < this.run.duration * scale && performance.now() - begin < BUDGET_MS / 2) this.renderTile(k);
    }
    return complete;
  }

  // The picture of the last view, to be stretched where this view's tiles are not there yet.
  keepOverview() {
    if (!this.shown) return;
    const copy = new OffscreenCanvas(this.canvas.width, this.canvas.height);
    copy.getContext("2d").drawImage(this.canvas, 0, 0);
    this.overview = { copy, ...this.shown };
  }
  drawStale(k, x) {
    const { overview, context: c, ratio } = this;
    if (!overview || overview.view !== `${this.stage.scrollY} ${this.stage.laneScale}`) return;
    const scale = this.pxPerMs, from = (k * TILE) / scale, to = ((k + 1) * TILE) / scale;
    const left = Math.max(overview.from, from), right = Math.min(overview.to, to);
    if (right <= left) return;
    const at = (t) => (this.gutter + (t - overview.from) * overview.scale) * ratio;
    c.drawImage(overview.copy, at(left), this.top * ratio, Math.max(1, at(right) - at(left)), this.body * ratio,
      x + (left - from) * scale, this.top, (right - left) * scale, this.body);
  }

  renderTile(k) {
    const { ratio, laneHeight: lane, stage, run } = this;
    const tile = new OffscreenCanvas(Math.round(TILE * ratio), Math.max(1, Math.round(this.body * ratio))), c = tile.getContext("2d", { alpha: false });
    c.fillStyle = this.colours.paper;
    c.fillRect(0, 0, tile.width, tile.height);
    const first = Math.max(0, Math.floor(stage.scrollY / lane)), last = Math.min(run.lanes.length - 1, Math.floor((stage.scrollY + this.body) / lane));
    for (let r = first; r <= last; r++) this.renderLane(c, run.lanes[r], k, (r * lane - stage.scrollY) * ratio, r);
    if (this.tiles.size >= MAX_TILES) this.tiles.delete(this.tiles.keys().next().value);
    this.tiles.set(k, tile);
    return tile;
  }

  renderLane(c, found, k, top, replica) {
    const { ratio, laneHeight: lane } = this, scale = this.pxPerMs * ratio, origin = k * TILE * ratio;
    const height = lane * ratio, strip = this.strip(lane) * ratio, wide = Math.round(TILE * ratio);
    if (replica % 2) { c.fillStyle = this.colours.panel; c.fillRect(0, top, wide, height); }
    c.fillStyle = this.colours.line;
    c.fillRect(0, top + height - ratio / 2, wide, ratio / 2);
    const row = this.rowHeight(lane) * ratio, gap = row > 4 * ratio ? ratio : row > 2 * ratio ? ratio / 2 : 0;
    const [from, to] = found.between(origin / scale, (origin + wide) / scale);
    const bar = (k, start, end) => {
      const a = Math.max(-2, start * scale - origin), b = Math.min(wide + 2, end * scale - origin);
      if (b > a) c.fillRect(a, top + height - 2 * ratio - (found.row[k] + 1) * row, Math.max(b - a, 0.4), row - gap);
    };
    this.colours.phases.forEach(({ queue, prefill, decode }, s) => {
      const mine = [];
      for (let k = from; k < to; k++) if (found.source[found.indexes[k]] === s && found.row[k] >= 0) mine.push(k);
      if (!mine.length) return;
      c.fillStyle = row >= HATCH_FROM * ratio ? this.hatches[s] : queue;
      for (const k of mine) bar(k, found.shownFrom[k], Math.min(found.begun[k], found.ends[k]));
      c.fillStyle = decode;
      for (const k of mine) bar(k, found.first[k], found.ends[k]);
      c.fillStyle = prefill;
      for (const k of mine) bar(k, found.begun[k], Math.min(found.first[k], found.ends[k]));
    });
    this.renderStrip(c, found, top, strip, scale, origin, wide);
  }

  // How many wait at the replica, as an area that hangs under the lane's top edge: the most in each column of pixels.
  renderStrip(c, found, top, height, scale, origin, wide) {
    c.fillStyle = this.colours.waiting;
    let k = upper(found.times, origin / scale) - 1;
    for (let x = 0; x < wide; x++) {
      const end = (origin + x + 1) / scale;
      let most = k >= 0 ? found.waiting[k] : 0;
      while (k + 1 < found.times.length && found.times[k + 1] < end) most = Math.max(most, found.waiting[++k]);
      if (most) {
        const size = Math.max(this.ratio, height * most / this.stage.peakWaiting);
        c.fillRect(x, top + height - size + this.ratio, 1, size);
      }
    }
    c.fillStyle = this.colours.line;
    c.fillRect(0, top + height + this.ratio, wide, this.ratio / 2);
  }

  // Crosses for what was shed, triangles for what expired, squares for what was rejected.
  drawMarks() {
    if (!this.stage.marked) return;
    const { context: c, run, colours } = this, { times, indexes } = run.unserved;
    c.fillStyle = colours.panel;
    c.fillRect(this.gutter, 0, this.plotWidth, MARKS - 1);
    c.strokeStyle = c.fillStyle = colours.ink;
    c.lineWidth = 1.3;
    c.beginPath();
    let written = -Infinity;
    const y = MARKS / 2;
    for (let k = upper(times, this.stage.from - 1); k < times.length && times[k] <= this.stage.to; k++) {
      const x = this.x(times[k]);
      if (x < written + 2) continue;
      written = x;
      const kind = run.outcomes[indexes[k]];
      if (kind === "expired") { c.moveTo(x - 3, y - 3); c.lineTo(x + 3, y - 3); c.lineTo(x, y + 3); c.closePath(); }
      else if (kind === "rejected") c.rect(x - 2.5, y - 2.5, 5, 5);
      else { c.moveTo(x - 3, y - 3); c.lineTo(x + 3, y + 3); c.moveTo(x + 3, y - 3); c.lineTo(x - 3, y + 3); }
    }
    c.stroke();
  }

  drawFuture() {
    const { context: c, colours, stage } = this, x = Math.max(this.gutter, this.x(stage.now));
    this.shown = { from: stage.from, to: stage.to, scale: this.pxPerMs, view: `${stage.scrollY} ${stage.laneScale}` };
    if (x > this.width) return;
    c.fillStyle = colours.cover;
    c.fillRect(x, 0, this.width - x, this.height);
    c.fillStyle = colours.accent;
    c.fillRect(x - 1, 0, 2, this.height - AXIS);
  }

  drawAxis() {
    const { context: c, colours, stage, gutter } = this, base = this.height - AXIS;
    c.fillStyle = colours.line;
    c.fillRect(gutter, base, this.plotWidth, 1);
    c.fillStyle = colours.soft;
    c.font = FONT;
    c.textAlign = "center";
    c.textBaseline = "top";
    for (const [t, text] of timeTicks(stage.from, stage.to, this.plotWidth)) {
      const x = this.x(t), half = c.measureText(text).width / 2;
      c.fillRect(x - 0.5, base, 1, 4);
      if (x - half > gutter - 8 && x + half < this.width) c.fillText(text, x, base + 7);
    }
  }

  drawGutter() {
    const { context: c, colours, stage, run, gutter, laneHeight: lane } = this, base = this.height - AXIS;
    c.fillStyle = colours.paper;
    c.fillRect(0, 0, gutter, base);
    c.save();
    c.beginPath();
    c.rect(0, this.top, gutter, base - this.top);
    c.clip();
    c.font = FONT;
    c.textAlign = "left";
    c.textBaseline = "middle";
    for (let r = 0; r < run.lanes.length; r++) {
      const y = this.top + r * lane - stage.scrollY;
      if (y > base || y + lane < 0) continue;
      const [waiting, running] = run.lanes[r].now(stage.now), roomy = gutter > 60, two = lane >= 44;
      c.fillStyle = colours.ink;
      c.fillText(run.names[r], 6, y + (two ? 13 : lane / 2));
      c.fillStyle = colours.soft;
      if (two) { c.fillText(`${running} run`, 6, y + 27); if (lane >= 56) c.fillText(`${waiting} wait`, 6, y + 41); }
      else if (roomy) c.fillText(`${running} + ${waiting}`, 30, y + lane / 2);
    }
    c.restore();
    if (stage.marked) {
      c.fillStyle = colours.soft;
      c.fillText(gutter > 60 ? "refused" : "refus.", 6, MARKS / 2);
    }
    c.fillStyle = colours.line;
    c.fillRect(gutter - 1, 0, 1, base);
  }

  drawSelected() {
    if (this.selected < 0) return;
    const place = this.place(this.selected), { context: c } = this;
    if (!place) return;
    c.save();
    c.beginPath();
    c.rect(this.gutter, 0, this.plotWidth, this.height - AXIS);
    c.clip();
    c.strokeStyle = this.colours.ink;
    c.lineWidth = 2;
    c.strokeRect(place.x - 1.5, place.y - 1.5, Math.max(place.width, 1) + 3, Math.max(place.height, 2) + 3);
    c.restore();
  }
}

// Where a request's prompt was computed, if not where it was decoded: [replica, from where its beginning came there].
function prefillOf(run, i) {
  const { prefill_replica: replica, prefill_source: source } = run.columns;
  return replica?.[i] >= 0 ? `${run.names[replica[i]]}, ${run.sources[source[i]]}` : null;
}

export const described = (run, i) => {
  const { columns } = run, ms = (a, b) => a < NEVER && b < NEVER ? a - b : null;
  return {
    request: i, replica: run.laneOf(i) < 0 ? "none" : run.names[run.laneOf(i)], prefill: prefillOf(run, i), outcome: run.outcomes[i], source: run.sources[columns.source[i]],
    from: columns.source_request[i], arrival: run.arrival[i], prompt: columns.prompt_tokens[i], output: columns.output_tokens[i],
    cached: columns.cached_tokens[i], loaded: columns.loaded_tokens?.[i] ?? 0, preemptions: columns.preemptions[i], slo_class: run.data.classes[columns.class[i]],
    queue: ms(run.scheduled[i], run.queued[i]), computing: ms(run.first_token[i], run.scheduled[i]),
    ttft: ms(run.first_token[i], run.arrival[i]), e2e: ms(run.finish[i], run.arrival[i]), group: columns.group[i],
  };
};
