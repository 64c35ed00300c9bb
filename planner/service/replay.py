"""One simulated plan request by request, for the replay: who went where, what waited, where the prefix came from."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from planner.plan import Plan
from planner.report import names
from planner.service.timeline import replica_names
from sim.cache_sources import tier_names
from sim.engine.requests import RequestTable
from sim.metrics import flatten
from sim.result import Result

PS_PER_TICK = 10**8  # a tenth of a millisecond
TICK_MS = 0.1
OUTCOMES = ("completed", "shed", "expired", "rejected", "unfinished")
SOURCES = NEW, CACHE, ELSEWHERE, LOST, REMOTE = ("new", "cache", "elsewhere", "lost", "remote")
SHOWN = (
    "ttft_mean_ms",
    "ttft_p90_ms",
    "ttft_p99_ms",
    "tpot_mean_ms",
    "e2e_mean_ms",
    "prefix_hit_rate",
    "output_tokens_per_s",
    "goodput_rps",
    "slo_attainment",
)

Ints = npt.NDArray[np.int64]


def replay(plan: Plan, result: Result) -> dict[str, Any]:
    """Every request of a run in columns of whole numbers.

    `arrival` counts ticks from the start of the run, the other times ticks from the request's arrival, -1 where they
    have not come. Arrival and end are as the client sees them, queue and first step as the engine does.
    """
    table, records, workload = result.table, result.records, result.workload
    metrics = flatten(result.summary())
    offered = records.offered
    columns: dict[str, Ints] = {"arrival": np.where(offered, np.rint(records.arrival_ms / TICK_MS), -1)}
    after = {
        "queued": _engine_time(table.queue_ps, result),
        "scheduled": _engine_time(table.scheduled_ps, result),
        "first_token": records.ttft_ms,
        "finish": records.e2e_ms,
    }
    columns |= {name: np.where(np.isfinite(value), np.rint(value / TICK_MS), -1) for name, value in after.items()}
    columns |= {
        "replica": records.replica,
        "prompt_tokens": records.prompt_tokens,
        "output_tokens": records.output_tokens,
        "cached_tokens": records.cached_tokens,
        "preemptions": records.preemptions,
        "class": records.slo_class,
        "outcome": _outcomes(result),
    }
    if workload.tenants:
        columns["tenant"] = records.tenant
    source, source_request = prefix_sources(table, result.deployment.block_size)
    source = _from_tiers(source, table)
    columns |= {"source": source, "source_request": source_request, "group": groups(table)}
    if table.tier_tokens:
        columns["loaded_tokens"] = np.sum(
            [np.frombuffer(tokens, dtype=np.int64) for tokens in table.tier_tokens], axis=0
        )
    columns |= _of_prefill_pool(result, source)
    return {
        "routing": plan.deployment["routing"],
        "label": names.plan_label(plan.deployment),
        "gpu": plan.deployment["gpu"],
        "replicas": len(result.replicas),
        "names": replica_names(result),
        "prefill_replicas": 0 if result.prefill is None else len(result.prefill.replicas),
        "max_num_seqs": result.deployment.max_num_seqs,
        "kv_capacity_tokens": result.capacity.tokens,
        "prefix_caching": result.deployment.enable_prefix_caching,
        "count": len(table),
        "duration_ms": round(result.duration_s * 1e3, 1),
        "tick_ms": TICK_MS,
        "classes": list(workload.slo_classes),
        "tenants": list(workload.tenants),
        "outcomes": list(OUTCOMES),
        "sources": [*SOURCES, *tier_names(result.replicas)],
        "metrics": {name: metrics.get(name) for name in SHOWN},
        "requests": {name: np.asarray(column).astype(np.int64).tolist() for name, column in columns.items()},
    }


def _from_tiers(source: Ints, table: RequestTable) -> Ints:
    """`source`, but the tier that gave a prompt the most where that is more than the GPU's memory had of it."""
    most = np.frombuffer(table.cached_tokens, dtype=np.int32).astype(np.int64)
    for number, column in enumerate(table.tier_tokens):
        tokens = np.frombuffer(column, dtype=np.int64)
        source = np.where(tokens > most, len(SOURCES) + number, source)
        most = np.maximum(most, tokens)
    return source


def _of_prefill_pool(result: Result, source: Ints) -> dict[str, Ints]:
    """What a prefill pool did for each request, -1 where it did nothing; what it sent on has its source there in
    `source`, which it had none of its own for."""
    if result.prefill is None:
        return {}
    table, sent = result.prefill.table, result.prefill.disaggregated
    after = {"queued": table.queue_ps, "scheduled": table.scheduled_ps, "finish": table.finish_ps}
    times = {name: _engine_time(column, result) for name, column in after.items()}
    found = {
        f"prefill_{name}": np.where(np.isfinite(value) & sent, np.rint(value / TICK_MS), -1)
        for name, value in times.items()
    }
    found["prefill_replica"] = np.frombuffer(table.replica, dtype=np.int32).astype(np.int64)
    own = _from_tiers(prefix_sources(table, result.prefill.deployment.block_size)[0], table)
    found["prefill_source"] = np.where(sent, own, -1)
    return found | {"source": np.where(sent, SOURCES.index(REMOTE), source)}


def _engine_time(column: Any, result: Result) -> npt.NDArray[np.float64]:
    """A time of the engine in ms after the request's arrival, nan where it has not come."""
    values = np.frombuffer(column, dtype=np.int64)
    limit = result.workload.time_limit_ps or np.iinfo(np.int64).max
    came = (values >= 0) & (values <= limit) & result.records.offered
    return np.where(came, values / 1e9 - result.records.arrival_ms, np.nan)


def _outcomes(result: Result) -> Ints:
    records = result.records
    found = np.full(len(records.offered), OUTCOMES.index("unfinished"), dtype=np.int64)
    for number, name in enumerate(OUTCOMES[:-1]):
        found[getattr(records, name)] = number
    return found


def groups(table: RequestTable) -> Ints:
    """Which leading content each request has: the number of its first shared piece, 0 where it shares none."""
    number: dict[int, int] = {}
    of_content = [number.setdefault(pieces[0][0], len(number) + 1) if pieces else 0 for pieces in table.contents]
    return np.array(of_content, dtype=np.int64)[np.frombuffer(table.content, dtype=np.int64)]


def prefix_sources(table: RequestTable, block_size: int) -> tuple[Ints, Ints]:
    """(source, request) of every request: where its prompt's leading part came from, by index into `SOURCES`, and the
    latest request before it with the longest leading part in common, -1 where there is none.

    Requests are taken in the order in which replicas began them. `cache`: its replica had cached blocks for it, and the
    request named is one of that replica. Where nothing was cached: `lost` if its replica had served such a prefix
    before, which was evicted or not computed yet; `elsewhere` if only another replica had; `new` if none.
    """
    paths = _paths(table, block_size)
    scheduled = np.frombuffer(table.scheduled_ps, dtype=np.int64)
    order = np.argsort(scheduled, kind="stable")
    n = len(table)
    source, request = np.zeros(n, dtype=np.int64), np.full(n, -1, dtype=np.int64)
    latest: dict[int, int] = {}  # node -> request, of any replica
    here: dict[tuple[int, int], int] = {}  # (node, replica) -> request
    for index in order[scheduled[order] >= 0].tolist():
        replica = table.replica[index]
        path = paths[table.content[index]]
        own = next((here[node, replica] for node in reversed(path) if (node, replica) in here), -1)
        other = next((latest[node] for node in reversed(path) if node in latest), -1)
        if table.cached_tokens[index] > 0:
            source[index], request[index] = SOURCES.index(CACHE), own
        elif own >= 0:
            source[index], request[index] = SOURCES.index(LOST), own
        elif other >= 0:
            source[index], request[index] = SOURCES.index(ELSEWHERE), other
        for node in path:
            latest[node] = index
            here[node, replica] = index
    return source, request


def _paths(table: RequestTable, block_size: int) -> list[list[int]]:
    """Of each content the nodes of a tree of shared pieces, from the root on; equal nodes, equal leading tokens.

    A piece that ends before the first block is full can be in no cache, and so has no node.
    """
    nodes: dict[tuple[int, int], int] = {}
    paths = []
    for pieces in table.contents:
        node, tokens, path = 0, 0, []
        for piece, length in pieces:
            node = nodes.setdefault((node, piece), len(nodes) + 1)
            tokens += length
            if tokens >= block_size:
                path.append(node)
        paths.append(path)
    return paths
