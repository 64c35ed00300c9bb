"""Builds the columns of a workload from its checked spec and a seed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from sim.errors import InputError
from sim.random_streams import random_stream
from sim.text_files import is_there
from sim.workload._bodies import Bodies, joined
from sim.workload._spec import (
    SLO_CLASS_PRIORITY,
    ClientsSpec,
    LengthsSpec,
    SessionsSpec,
    SharedPrefixSpec,
    TraceSpec,
    WorkloadSpec,
)
from sim.workload._types import NS_PER_S, PS_PER_NS, PS_PER_S, IntColumn, Pieces, Workload, sums_along
from sim.workload._validation import MAX_SECONDS
from sim.workload.arrivals import open_loop
from sim.workload.content import keep_shared
from sim.workload.conversations import with_growing_prompts, with_waiting_turns
from sim.workload.distributions import sample_lengths
from sim.workload.servegen import draw_servegen
from sim.workload.sessions import draw_sessions
from sim.workload.traces import Trace, read_trace


def build_workload(spec: WorkloadSpec, seed: int, base_dir: Path | None = None, field: str = "workload") -> Workload:
    """The requests of `spec`, in order of arrival; the same seed gives the same bytes.

    Arrivals, lengths, and the order of prompts draw from streams of their own, so changing one leaves the others as
    they were. Trace files are looked up from `base_dir` (default: the working directory). Raises InputError for a
    missing or broken trace (with its line), and where no request arrives.
    """
    if spec.arrival is None:
        build = _merged if isinstance(spec, ClientsSpec) else _replayed
        workload = build(spec, seed, base_dir, field)
    else:
        workload = _generated(spec, seed, base_dir, field)
    if len(workload) == 0:
        raise InputError(field, "no request arrives before it ends")
    workload.contents, workload.content = keep_shared(workload.contents, workload.content)
    workload.name = spec.name or workload.name
    workload.time_limit_ps = round((spec.time_limit_s or 0.0) * PS_PER_S)
    return workload


def _generated(spec: WorkloadSpec, seed: int, base_dir: Path | None, field: str, scope: str = "workload/") -> Workload:
    """A workload whose arrivals come from a process."""
    arrival = spec.arrival
    assert arrival is not None
    trace = _trace(spec, seed, scope, base_dir, field) if isinstance(spec, TraceSpec) else None
    count = spec.num_requests
    if trace is not None and count is None and spec.duration_s is None and not arrival.stages:
        count = len(trace)
    bodies = None
    if count is not None and _has_sessions(spec):
        bodies, count = _first_requests(lambda n: _bodies(spec, n, seed, scope, base_dir, field), count)
    elif isinstance(spec, SessionsSpec) and spec.num_sessions is not None:
        count = spec.num_sessions
    stage: IntColumn | None = None
    if arrival.process == "closed":
        assert count is not None
        arrival_ps = np.zeros(count, np.int64)
    else:
        arrival_ps, stage = open_loop(arrival, count, spec.duration_s, seed, scope, f"{field}.arrival")
    n = len(arrival_ps)
    if trace is not None:
        assert isinstance(spec, TraceSpec)
        bodies = _of_trace(spec, trace, n, field)
    elif bodies is None:
        bodies = _bodies(spec, n, seed, scope, base_dir, field)
    if bodies.of_arrival is not None:
        arrival_ps, stage, bodies = _in_order(arrival_ps, stage, bodies, arrival.process == "closed")
    workload = _assembled(spec, arrival_ps, bodies)
    workload.stage = stage
    workload.stage_duration_s = [s.duration_s for s in arrival.load_stages]
    if arrival.process == "closed":
        workload.users = arrival.users or 0
        workload.think_time_ps = round((arrival.think_time_s or 0.0) * PS_PER_S)
    return workload


def _has_sessions(spec: WorkloadSpec) -> bool:
    """Whether one arrival may bring several requests."""
    if isinstance(spec, ClientsSpec):
        return any(_has_sessions(client.workload) for client in spec.clients)
    return isinstance(spec, SessionsSpec)


def _first_requests(draw: Callable[[int], Bodies], count: int) -> tuple[Bodies, int]:
    """The first `count` requests in order of the arrivals that bring them, and how many arrivals that takes.

    `draw(n)` are the requests of n arrivals, at least one each.
    """
    arrivals = -(-count // 16)
    bodies = draw(arrivals)
    while len(bodies) < count:
        arrivals = min(count, max(2 * arrivals, count * arrivals // len(bodies)))
        bodies = draw(arrivals)
    bodies = bodies.taken(np.arange(count))
    return bodies, int(bodies.arrivals()[-1]) + 1


def _in_order(
    arrival_ps: IntColumn, stage: IntColumn | None, bodies: Bodies, closed: bool
) -> tuple[IntColumn, IntColumn | None, Bodies]:
    """The column of arrivals, that of stages, and the requests in order of the earliest time at which each may arrive.

    In a closed loop the order stays, as the users take one session after the other.
    """
    of_arrival, follows, think_ps = bodies.arrivals(), bodies.follows, bodies.think_ps
    assert follows is not None
    assert think_ps is not None
    column_ps = np.where(follows < 0, arrival_ps[of_arrival], think_ps)
    stage = None if stage is None else stage[of_arrival]
    if closed:
        return column_ps, stage, bodies
    order = np.argsort(sums_along(follows, column_ps), kind="stable")
    return column_ps[order], None if stage is None else stage[order], bodies.taken(order)


def _replayed(spec: WorkloadSpec, seed: int, base_dir: Path | None, field: str, scope: str = "workload/") -> Workload:
    """A workload whose arrivals are the trace's own."""
    if not isinstance(spec, TraceSpec):
        return _generated(spec, seed, base_dir, field, scope)
    trace = _trace(spec, seed, scope, base_dir, field)
    if trace.arrival_ns is None:
        raise InputError(f"{field}.arrival", f"is required: {Path(spec.trace).name} has no times")
    with np.errstate(over="ignore"):
        scaled = trace.arrival_ns if spec.arrival_scale is None else np.rint(trace.arrival_ns * spec.arrival_scale)
    if scaled[-1] > MAX_SECONDS * NS_PER_S:
        raise InputError(f"{field}.trace", f"lasts {scaled[-1] / NS_PER_S:.3g} s, more than {MAX_SECONDS:,} s")
    arrival_ns = scaled.astype(np.int64)
    n = len(trace) if spec.num_requests is None else spec.num_requests
    if spec.duration_s is not None:
        n = int(np.searchsorted(arrival_ns, round(spec.duration_s * NS_PER_S), side="left"))
    bodies = _of_trace(spec, trace, n, field)
    if bodies.follows is None:
        return _assembled(spec, arrival_ns[:n] * PS_PER_NS, bodies)
    column_ps, _, bodies = _in_order(arrival_ns[:n] * PS_PER_NS, None, bodies, closed=False)
    return _assembled(spec, column_ps, bodies)


def _trace(spec: TraceSpec, seed: int, scope: str, base_dir: Path | None, field: str) -> Trace:
    file, where = (base_dir or Path()) / spec.trace, f"{field}.trace"
    if spec.format == "servegen" or (spec.format is None and is_there(file) and file.is_dir()):
        span_s = None
        if spec.duration_s is not None and spec.arrival is None:
            span_s = spec.duration_s / (spec.arrival_scale or 1.0)
        trace = draw_servegen(file, seed, scope, spec.start_s, span_s, where)
    else:
        trace = read_trace(file, spec.format, where)
        if spec.start_s is not None:
            trace = _from_start(trace, spec.start_s, field)
    return trace if spec.max_requests is None else _rows(trace, slice(spec.max_requests))


def _from_start(trace: Trace, start_s: float, field: str) -> Trace:
    if trace.arrival_ns is None:
        raise InputError(f"{field}.start_s", "needs a trace with times")
    start_ns = round(start_s * NS_PER_S)
    later = _rows(trace, slice(int(np.searchsorted(trace.arrival_ns, start_ns, side="left")), None))
    if len(later) == 0:
        raise InputError(f"{field}.start_s", f"is past the trace's last request, at {trace.arrival_ns[-1] / 1e9:g} s")
    assert later.arrival_ns is not None
    later.arrival_ns = later.arrival_ns - start_ns
    return later


def _rows(trace: Trace, rows: slice) -> Trace:
    return Trace(
        None if trace.arrival_ns is None else trace.arrival_ns[rows],
        trace.prompt_tokens[rows],
        trace.output_tokens[rows],
        trace.contents,
        trace.content[rows],
        None if trace.slo_class is None else trace.slo_class[rows],
        None if trace.tenant is None else trace.tenant[rows],
        None if trace.session is None else trace.session[rows],
        None if trace.answered_ns is None else trace.answered_ns[rows],
    )


def _of_trace(spec: TraceSpec, trace: Trace, n: int, field: str) -> Bodies:
    if n > len(trace):
        raise InputError(f"{field}.trace", f"has {len(trace)} requests, {n} are asked for")
    cut = _rows(trace, slice(n))
    columns = (cut.prompt_tokens, cut.output_tokens, cut.contents, cut.content, cut.slo_class, cut.tenant)
    bodies = Bodies(*columns, session=cut.session)
    if spec.sessions == "recorded":
        return bodies
    if bodies.session is None:
        raise InputError(f"{field}.sessions", "needs a trace that names sessions (a column session_id)")
    bodies = with_growing_prompts(bodies)
    if spec.sessions == "closed":
        if cut.answered_ns is None or cut.arrival_ns is None:
            raise InputError(f"{field}.sessions", "closed needs a trace that says when requests were answered")
        bodies = with_waiting_turns(bodies, cut.arrival_ns, cut.answered_ns)
    return bodies


def _bodies(spec: WorkloadSpec, n: int, seed: int, scope: str, base_dir: Path | None, field: str) -> Bodies:
    if isinstance(spec, SharedPrefixSpec):
        return _shared_prefix(spec, n, seed, scope)
    if isinstance(spec, LengthsSpec):
        return _lengths(spec, n, seed, scope)
    if isinstance(spec, SessionsSpec):
        return draw_sessions(spec, n, seed, scope, field)
    if isinstance(spec, TraceSpec):
        return _of_trace(spec, _trace(spec, seed, scope, base_dir, field), n, field)
    assert isinstance(spec, ClientsSpec)
    return _mixed(spec, n, seed, scope, base_dir, field)


def _shared_prefix(spec: SharedPrefixSpec, n: int, seed: int, scope: str) -> Bodies:
    """The prompts of inference-perf's SharedPrefixDataGenerator: made group by group, shuffled once, then cycled."""
    groups, per_group = spec.num_groups, spec.num_prompts_per_group
    prompts = groups * per_group

    def lengths(name: str, count: int, at_least: int) -> IntColumn:
        dist = getattr(spec, name)
        return sample_lengths(dist, random_stream(seed, f"{scope}{name}"), count, at_least)

    group = np.repeat(np.arange(groups), per_group)
    system = lengths("system_prompt_len", groups, 0)
    question = lengths("question_len", prompts, 0)
    question = np.maximum(question, 1 - system[group])  # an engine refuses an empty prompt
    output = lengths("output_len", prompts, 1)
    order = random_stream(seed, f"{scope}prompt_order").permutation(prompts)
    used = order[: min(n, prompts)]
    contents: list[Pieces] = [()]
    for prompt in used.tolist():
        pieces = ((int(group[prompt]) + 1, int(system[group[prompt]])), (groups + prompt + 1, int(question[prompt])))
        contents.append(tuple(piece for piece in pieces if piece[1]))
    turn = np.arange(n) % prompts
    prompt_of = used[turn]
    return Bodies((system[group] + question)[prompt_of], output[prompt_of], contents, turn + 1)


def _lengths(spec: LengthsSpec, n: int, seed: int, scope: str) -> Bodies:
    prompt = sample_lengths(spec.input, random_stream(seed, f"{scope}input"), n)
    output = sample_lengths(spec.output, random_stream(seed, f"{scope}output"), n)
    if spec.prefix is None:
        return Bodies(prompt, output, [()], np.zeros(n, np.int64))
    groups = spec.prefix.groups
    tokens = sample_lengths(spec.prefix.tokens, random_stream(seed, f"{scope}prefix_tokens"), groups, at_least=0)
    group = random_stream(seed, f"{scope}prefix_group").integers(0, groups, n, dtype=np.int64)
    contents: list[Pieces] = [(), *((((g + 1), t),) if t else () for g, t in enumerate(tokens.tolist()))]
    return Bodies(prompt + tokens[group], output, contents, group + 1)


def _mixed(spec: ClientsSpec, n: int, seed: int, scope: str, base_dir: Path | None, field: str) -> Bodies:
    """Each request is a client's with the probability of its share."""
    largest = max(client.share or 0.0 for client in spec.clients)  # by which they are divided, lest the sum overflow
    shares = np.cumsum([(client.share or 0.0) / largest for client in spec.clients])
    draws = random_stream(seed, f"{scope}client").random(n) * shares[-1]
    owner = np.minimum(np.searchsorted(shares, draws, side="right"), len(shares) - 1)
    parts, of_arrival = [], []
    for i, client in enumerate(spec.clients):
        own, where = np.flatnonzero(owner == i), f"{field}.clients[{i}]"
        body = _bodies(client.workload, len(own), seed, f"{scope}client/{i}/", base_dir, where)
        parts.append(_labelled(client.workload, body))
        of_arrival.append(own[body.arrivals()])
    mixed, arrivals = joined(parts), np.concatenate(of_arrival)
    if mixed.follows is not None:
        mixed.of_arrival = arrivals
    return mixed.taken(np.argsort(arrivals, kind="stable"))


def _merged(spec: WorkloadSpec, seed: int, base_dir: Path | None, field: str) -> Workload:
    """Clients with arrivals of their own, in one order of arrival (ties: the earlier client first)."""
    assert isinstance(spec, ClientsSpec)
    parts, arrivals, earliest = [], [], []
    for i, client in enumerate(spec.clients):
        part = _replayed(client.workload, seed, base_dir, f"{field}.clients[{i}]", f"workload/client/{i}/")
        names = [part.slo_classes[0]] * len(part)
        if part.slo_class is not None:
            names = [part.slo_classes[c] for c in part.slo_class.tolist()]
        tenants = [""] * len(part) if part.tenant is None else [part.tenants[t] for t in part.tenant.tolist()]
        columns = (part.prompt_tokens, part.output_tokens, part.contents, part.content, names, tenants)
        parts.append(Bodies(*columns, session=part.session, follows=part.follows))
        arrivals.append(part.arrival_ps)
        earliest.append(part.earliest_ps())
    order = np.argsort(np.concatenate(earliest), kind="stable")
    return _assembled(spec, np.concatenate(arrivals)[order], joined(parts).taken(order))


def _labelled(spec: WorkloadSpec, body: Bodies) -> Bodies:
    """`body` with a class and a tenant for each request; the spec's own replace a trace's."""
    n = len(body.prompt_tokens)
    if spec.slo_class is not None or body.slo_class is None:
        body.slo_class = [spec.slo_class or "standard"] * n
    if spec.tenant is not None or body.tenant is None:
        body.tenant = [spec.tenant or ""] * n
    return body


def _assembled(spec: WorkloadSpec, arrival_ps: IntColumn, body: Bodies) -> Workload:
    name = Path(spec.trace).stem if isinstance(spec, TraceSpec) else spec.kind
    workload = Workload(name, arrival_ps, body.prompt_tokens, body.output_tokens, body.content, body.contents)
    workload.session, workload.follows = body.session, body.follows
    if spec.slo_class is not None or spec.tenant is not None or body.slo_class or body.tenant:
        body = _labelled(spec, body)
    if body.slo_class:
        classes, column = _encoded(body.slo_class)
        priority = np.array([-SLO_CLASS_PRIORITY[c] for c in classes], np.int64)
        workload.slo_classes, workload.slo_class, workload.priority = classes, column, priority[column]
    if body.tenant and any(body.tenant):
        workload.tenants, workload.tenant = _encoded(body.tenant)
    return workload


def _encoded(names: list[str]) -> tuple[list[str], IntColumn]:
    """Distinct names in alphabetical order, and each entry's index into them."""
    distinct = sorted(set(names))
    index = {name: i for i, name in enumerate(distinct)}
    return distinct, np.fromiter((index[name] for name in names), np.int64, len(names))
