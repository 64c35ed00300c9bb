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
    this.tallies();
    this.lanes = Array.from({ length: this.replicas }, () => []);
    for (let i = 0; i < this.count; i++) if (columns.replica[i] >= 0 && this.queued[i] < NEVER) this.lanes[columns.replica[i]].push(i);
    this.position = new Int32Array(this.count).fill(-1);  // in its lane
    this.lanes = this.lanes.map((indexes) => new Lane(this, indexes));
    this.rows = Math.max(1, ...this.lanes.map((lane) => lane.rows));
    this.peakWaiting = Math.max(1, ...this.lanes.map((lane) => lane.peakWaiting));
    this.unserved = this.marks();
  }

  tallies() {
    const { arrival, queued, scheduled, first_token: first, columns } = this;
    const all = Array.from(arrival);
    this.ttft = new Tally(Array.from(first), first.map((t, i) => t - arrival[i]));
    this.looked = new Tally(Array.from(scheduled), columns.cached_tokens, columns.prompt_tokens);
    this.joined = new Tally(Array.from(queued));
    this.ended = new Tally(Array.from(this.finish));
    this.refused = new Tally(all.map((t, i) => REFUSED.has(this.outcomes[i]) ? t : NEVER));
  }

  // What is known at time `t` (ms): counts, the mean TTFT (ms) and the hit rate (share) so far, null before the first.
  at(t) {
    const started = this.ttft.count(t), prompt = this.looked.total(t, 1);
    const joined = this.joined.count(t), scheduled = this.looked.count(t), ended = this.ended.count(t);
    return {
      meanTtft: started ? this.ttft.total(t) / started : null,
      hitRate: prompt ? this.looked.total(t, 0) / prompt : null,
      waiting: joined - scheduled, running: scheduled - ended, completed: ended, refused: this.refused.count(t),
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
  constructor(run, indexes) {
    indexes.sort((a, b) => run.queued[a] - run.queued[b] || a - b);
    this.indexes = Int32Array.from(indexes);
    indexes.forEach((i, k) => { run.position[i] = k; });
    this.starts = Float64Array.from(indexes, (i) => run.queued[i]);
    this.ends = Float64Array.from(indexes, (i) => Math.min(run.finish[i], Math.max(run.duration, run.queued[i])));
    let latest = 0;
    this.latestEnd = Float64Array.from(this.ends, (end) => (latest = Math.max(latest, end)));
    this.level(run);
    this.pack(run);
  }

  // Positions [from, to) of the requests that may be there between `t0` and `t1`.
  between(t0, t1) { return [upper(this.latestEnd, t0), upper(this.starts, t1)]; }

  // How many wait and how many run, over time.
  level(run) {
    const events = [];
    for (const i of this.indexes) {
      events.push([run.queued[i], 1, 0]);
      if (run.scheduled[i] < NEVER) events.push([run.scheduled[i], -1, 1]);
      if (run.finish[i] < NEVER) events.push([run.finish[i], 0, -1]);
    }
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
  pack(run) {
    const events = [];
    this.indexes.forEach((i, k) => {
      events.push([this.starts[k], 1, k]);
      if (run.scheduled[i] > this.starts[k] && run.scheduled[i] < NEVER) events.push([run.scheduled[i], 2, k]);
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
