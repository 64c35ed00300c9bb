// A replay's columns as typed arrays in milliseconds, indexed so that every question costs a binary search.

export const NEVER = Infinity;
const REFUSED = new Set(["shed", "expired", "rejected"]);
const ROOM = 1.25;  // rows of a lane, over the most that ever run there, for those that wait

// The first index of the sorted `values` that is above `limit`.
export function upper(values, limit) {
  let low = 0, high = values.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] <= limit) low = middle + 1; else high = middle;
  }
  return low;
}

// Moments in order of time, with the running totals of what each brings.
class Tally {
  constructor(times, ...amounts) {
    const order = times.map((_, i) => i).filter((i) => times[i] < NEVER).sort((a, b) => times[a] - times[b]);
    this.times = Float64Array.from(order, (i) => times[i]);
    this.totals = amounts.map((amount) => {
      let total = 0;
      return Float64Array.from(order, (i) => (total += amount[i]));
    });
  }
  count(t) { return upper(this.times, t); }
  total(t, which = 0) { const n = this.count(t); return n ? this.totals[which][n - 1] : 0; }
}

export class ReplayRun {
  // data: the answer of .../replay, see the API's description.
  constructor(data) {
    this.data = data;
    this.count = data.count;
    this.replicas = data.replicas;
    this.sources = data.sources;
    const columns = data.requests, tick = data.tick_ms;
    this.columns = columns;
    this.arrival = Float64Array.from(columns.arrival, (ticks) => ticks < 0 ? NEVER : ticks * tick);
    for (const name of ["queued", "scheduled", "first_token", "finish"]) {
      this[name] = Float64Array.from(columns[name], (ticks, i) => ticks < 0 ? NEVER : this.arrival[i] + ticks * tick);
    }
    this.duration = this.finish.reduce((latest, t) => t < NEVER ? Math.max(latest, t) : latest, data.duration_ms);
    this.outcomes = columns.outcome.map((index) => data.outcomes[index]);
    this.makeLanes(data);
    this.tallies();
    this.rows = Math.max(1, ...this.lanes.map((lane) => lane.rows));
    this.peakWaiting = Math.max(1, ...this.lanes.map((lane) => lane.peakWaiting));
    this.unserved = this.marks();
  }

  // A lane for each replica of the prefill pool, where there is one, and for each replica.
  makeLanes({ prefill_replicas: pool = 0, tick_ms: tick }) {
    const { columns, count } = this;
    const after = (name) => Float64Array.from(columns[name], (ticks, i) => ticks < 0 ? NEVER : this.arrival[i] + ticks * tick);
    const sent = (i) => pool > 0 && columns.prefill_replica[i] >= 0;
    const lanes = (length, replica, times, source) => {
      const indexes = Array.from({ length }, () => []);
      for (let i = 0; i < count; i++) if (replica[i] >= 0 && times.queued[i] < NEVER) indexes[replica[i]].push(i);
      return indexes.map((some) => new Lane(some, times, source, this.duration, count));
    };
    let before = [];
    if (pool) {
      const [queued, begun, ends] = ["prefill_queued", "prefill_scheduled", "prefill_finish"].map(after);
      before = lanes(pool, columns.prefill_replica, { queued, begun, first: ends, ends }, columns.prefill_source);
      this.looked_at = begun.map((t, i) => sent(i) ? t : this.scheduled[i]);
    }
    const first = this.first_token.map((t, i) => sent(i) ? this.scheduled[i] : t);  // what was computed elsewhere decodes at once
    const own = lanes(this.replicas, columns.replica, { queued: this.queued, begun: this.scheduled, first, ends: this.finish }, columns.source);
    this.lanes = [...before, ...own];
    this.names = this.data.names;
    this.poolSize = pool;
  }

  // The lane where a request ends, or else the first it was in; -1: none.
  laneOf(i) {
    const { replica, prefill_replica: sent } = this.columns;
    return replica[i] >= 0 ? this.poolSize + replica[i] : sent?.[i] ?? -1;
  }

  tallies() {
    const { arrival, scheduled, first_token: first, columns } = this;
    const all = Array.from(arrival);
    this.ttft = new Tally(Array.from(first), first.map((t, i) => t - arrival[i]));
    this.looked = new Tally(Array.from(this.looked_at ?? scheduled), columns.cached_tokens, columns.prompt_tokens);
    this.ended = new Tally(Array.from(this.finish));
    this.refused = new Tally(all.map((t, i) => REFUSED.has(this.outcomes[i]) ? t : NEVER));
  }

  // What is known at time `t` (ms): counts, the mean TTFT (ms) and the hit rate (share) so far, null before the first.
  at(t) {
    const started = this.ttft.count(t), prompt = this.looked.total(t, 1);
    let waiting = 0, running = 0;
    for (const lane of this.lanes) { const [w, r] = lane.now(t); waiting += w; running += r; }
    return {
      meanTtft: started ? this.ttft.total(t) / started : null,
      hitRate: prompt ? this.looked.total(t, 0) / prompt : null,
      waiting, running, completed: this.ended.count(t), refused: this.refused.count(t),
    };
  }

  // Requests that no replica served, in order of time.
  marks() {
    const found = [];
    for (let i = 0; i < this.count; i++) if (REFUSED.has(this.outcomes[i])) found.push(i);
    found.sort((a, b) => this.arrival[a] - this.arrival[b]);
    return { indexes: found, times: Float64Array.from(found, (i) => this.arrival[i]) };
  }
}

// The requests of one replica, by the moment they came to its queue, each in a row that it has for itself.
class Lane {
  // indexes: the requests; times: {queued, begun, first, ends} of every request, there; source: of every request.
  constructor(indexes, times, source, duration, count) {
    indexes.sort((a, b) => times.queued[a] - times.queued[b] || a - b);
    this.indexes = Int32Array.from(indexes);
    this.position = new Int32Array(count).fill(-1);
    indexes.forEach((i, k) => { this.position[i] = k; });
    this.source = source;
    this.starts = Float64Array.from(indexes, (i) => times.queued[i]);
    this.begun = Float64Array.from(indexes, (i) => times.begun[i]);
    this.first = Float64Array.from(indexes, (i) => times.first[i]);
    this.done = Float64Array.from(indexes, (i) => times.ends[i]);
    this.ends = this.done.map((t, k) => Math.min(t, Math.max(duration, this.starts[k])));
    let latest = 0;
    this.latestEnd = Float64Array.from(this.ends, (end) => (latest = Math.max(latest, end)));
    this.level();
    this.pack();
  }

  // Positions [from, to) of the requests that may be there between `t0` and `t1`.
  between(t0, t1) { return [upper(this.latestEnd, t0), upper(this.starts, t1)]; }

  // How many wait and how many run, over time.
  level() {
    const events = [];
    this.starts.forEach((start, k) => {
      events.push([start, 1, 0]);
      if (this.begun[k] < NEVER) events.push([this.begun[k], -1, 1]);
      if (this.done[k] < NEVER) events.push([this.done[k], 0, -1]);
    });
    events.sort((a, b) => a[0] - b[0]);
    this.times = new Float64Array(events.length);
    this.waiting = new Int32Array(events.length);
    this.running = new Int32Array(events.length);
    let waiting = 0, running = 0;
    events.forEach(([time, wait, run], k) => {
      this.times[k] = time;
      this.waiting[k] = waiting += wait;
      this.running[k] = running += run;
    });
    this.peakWaiting = this.waiting.reduce((a, b) => Math.max(a, b), 0);
    this.peakRunning = this.running.reduce((a, b) => Math.max(a, b), 0);
  }
  now(t) { const k = upper(this.times, t) - 1; return k < 0 ? [0, 0] : [this.waiting[k], this.running[k]]; }

  // The lowest free row for each. Where too many wait, the later get theirs only when they start to run; `shownFrom`
  // says from when a bar has its row.
  pack() {
    const events = [];
    this.starts.forEach((start, k) => {
      events.push([start, 1, k]);
      if (this.begun[k] > start && this.begun[k] < NEVER) events.push([this.begun[k], 2, k]);
      events.push([this.ends[k], 0, k]);
    });
    events.sort((a, b) => a[0] - b[0] || a[1] - b[1]);
    this.row = new Int32Array(this.indexes.length).fill(-1);
    this.shownFrom = Float64Array.from(this.starts);
    const limit = Math.ceil(this.peakRunning * ROOM) + 2, free = new FreeRows(), ended = new Uint8Array(this.indexes.length);
    for (const [time, kind, k] of events) {
      if (kind === 0) {
        ended[k] = 1;
        if (this.row[k] >= 0) free.release(this.row[k]);
      } else if (this.row[k] < 0 && !ended[k] && (kind === 2 || free.lowest() < limit)) {
        this.row[k] = free.take();
        this.shownFrom[k] = time;
      }
    }
    this.rows = Math.max(1, free.most);
  }
}

class FreeRows {
  constructor() { this.heap = []; this.most = 0; }
  lowest() { return this.heap.length ? this.heap[0] : this.most; }
  take() {
    const { heap } = this;
    if (!heap.length) return this.most++;
    const least = heap[0], last = heap.pop();
    if (heap.length) { heap[0] = last; this.sink(); }
    return least;
  }
  release(row) {
    const { heap } = this;
    let at = heap.push(row) - 1;
    while (at && heap[(at - 1) >> 1] > heap[at]) {
      const up = (at - 1) >> 1;
      [heap[at], heap[up]] = [heap[up], heap[at]];
      at = up;
    }
  }
  sink() {
    const { heap } = this;
    for (let at = 0; ;) {
      let least = 2 * at + 1;
      if (least >= heap.length) return;
      if (least + 1 < heap.length && heap[least + 1] < heap[least]) least++;
      if (heap[at] <= heap[least]) return;
      [heap[at], heap[least]] = [heap[least], heap[at]];
      at = least;
    }
  }
}
