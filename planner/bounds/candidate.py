"""Bounds on the metrics of one candidate: no simulation of it gives a lower latency or a higher rate."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from planner.bounds.queueing import finish_floors, start_floors, wait_floor, waiting_longer
from planner.bounds.steps import Array, Ints, StepFloors
from planner.evaluate import Evaluator
from planner.parameters import OF_DISAGGREGATION, content_id, policy_name, to_deployment
from sim.checks import check_deployment
from sim.deployment import Deployment
from sim.errors import InputError
from sim.latency import RequestOverhead, build_overhead
from sim.memory import kv_capacity
from sim.metrics import METRICS, PS_PER_MS, PS_PER_S, distribution, flat_name
from sim.workload import Workload, content_tokens

ROUNDING = 1e-9  # bounds are in floating point, the simulation in whole picoseconds
BIN = 0.01  # gaps between tokens are known to the width of a histogram's bin

# What the floors of requests and steps depend on: neither on routing and admission nor on how many replicas there are.
_REPLICA = (
    "gpu",
    "tensor_parallel_size",
    "max_num_seqs",
    "max_num_batched_tokens",
    "block_size",
    "enable_prefix_caching",
    "kv_cache_dtype",
    "quantization",
    "async_scheduling",
    "long_prefill_token_threshold",
    "gateway",
    *OF_DISAGGREGATION,
)


@dataclass(slots=True)
class _Floors:
    """Of each request of the workload, in ps; independent of the load.

    With a prefill pool all but `lead` are those of the decode pool, through which every request goes.
    """

    before: Array  # from its arrival to its place in the first engine's queue
    lead: Array  # from its first step, if that is in a prefill pool, to its place in the next engine's queue; else 0
    prefill: Array  # from its first step there to the end of the step that makes its first token
    decode: Array  # from there to its last token
    work: Array  # of one replica's time
    gap: float  # between two tokens of anybody
    overhead: RequestOverhead

    @property
    def ttft(self) -> Array:
        """As the client sees it."""
        return self.before + self.lead + self.prefill + self.overhead.first_token_ps

    @property
    def e2e(self) -> Array:
        """As the client sees it."""
        return self.before + self.lead + self.prefill + self.decode + self.overhead.last_token_ps


class Bounds:
    """Bounds for the candidates of `evaluator`, under its workload."""

    def __init__(self, evaluator: Evaluator) -> None:
        self._evaluator = evaluator
        self._floors: dict[str, _Floors] = {}
        self._known: dict[str, dict[str, float]] = {}
        workload = evaluator.workload
        self._prompt: Ints = workload.prompt_tokens
        self._output: Ints = workload.output_tokens
        shareable = content_tokens(workload.contents)
        self._shareable: Ints = np.minimum(shareable[workload.content], self._prompt - 1)
        self._limit = float(workload.time_limit_ps) or math.inf
        self._arrival: Array = workload.earliest_ps().astype(np.float64)

    def of(self, parameters: Mapping[str, Any]) -> dict[str, float]:
        """Bounds by flat metric: from below for what is better low, from above for what is better high.

        Metrics without a bound are left out; all are where the engine would refuse to start the candidate.
        """
        blind = ("scheduling", "preemption", "routing", "prefill_routing", "snapshot_interval_ms")
        key = content_id({name: value for name, value in parameters.items() if name not in blind})
        if key not in self._known:
            try:
                found = self._bounds(parameters)
            except InputError:
                found = {}
            self._known[key] = found
        return self._known[key]

    def work_ceiling_rps(self, parameters: Mapping[str, Any]) -> float:
        """The arrival rate at which the least work of all requests takes all of the replicas' time; inf where it cannot
        be said. A short run may end above it: it ranks candidates, and proves nothing."""
        try:
            deployment = to_deployment(parameters, self._evaluator.model, self._evaluator.gpus)
            check_deployment(deployment)
            work = float(self._floors_of(deployment, parameters).work.sum())
        except InputError:
            return math.inf
        return len(self._arrival) * deployment.replicas * PS_PER_S / work if work else math.inf

    def _bounds(self, parameters: Mapping[str, Any]) -> dict[str, float]:
        evaluator = self._evaluator
        deployment = to_deployment(parameters, evaluator.model, evaluator.gpus)
        check_deployment(deployment)
        capacity = kv_capacity(deployment)
        total = self._prompt + self._output
        fits = (total <= capacity.max_model_len) & (total - 1 <= capacity.num_blocks * deployment.block_size)
        pool = deployment.prefill_pool()
        if pool is not None:
            elsewhere = kv_capacity(pool)
            fits &= (self._prompt < elsewhere.max_model_len) & (self._prompt <= elsewhere.tokens)
        workload = evaluator.workload
        served = fits if workload.users else fits & (self._arrival <= self._limit)
        static = evaluator.static_metrics(parameters)
        if not served.any():
            return static
        longest = int(total[served].max()) // deployment.block_size + 2
        case = _Case(
            deployment=deployment,
            floors=self._floors_of(deployment, parameters),
            served=served,
            arrival=self._arrival,
            output=self._output,
            tokens=total,
            limit=self._limit,
            users=workload.users,
            think=_think_ps(workload, served),
            reactive=workload.answers_bring_requests,
            everybody=policy_name(parameters["admission"]) == "always-admit"
            and policy_name(parameters["flow_control"]) == "none"
            and not (workload.answers_bring_requests and self._limit < math.inf),
            # Who waits for its KV to come over holds blocks and no seat, so that blocks may run out before seats do.
            # Whoever waits for a load holds blocks without a seat.
            seats_held=policy_name(parameters["kv_offload"]) == "none"
            and pool is None
            and deployment.max_num_seqs * longest <= capacity.num_blocks,
            request_slo=evaluator.request_slo,
        )
        found = static | case.metrics(static["cost_per_hour"])
        return {name: value for name, value in found.items() if name in METRICS and math.isfinite(value)}

    def _floors_of(self, deployment: Deployment, parameters: Mapping[str, Any]) -> _Floors:
        key = content_id([parameters[name] for name in _REPLICA], parameters["prefill_replicas"] > 0)
        if key not in self._floors:
            floors = self._make_floors(deployment)
            pool = deployment.prefill_pool()
            self._floors[key] = floors if pool is None else self._with_prefill_pool(floors, deployment, pool)
        return self._floors[key]

    def _with_prefill_pool(self, whole: _Floors, deployment: Deployment, pool: Deployment) -> _Floors:
        """The floors of a decode pool behind a prefill pool, from those of one that prefills itself (`whole`).

        A disaggregated request computes nothing but its prompt's last token in the decode pool, and that only after its
        prefill, the way to the second server, and the transfer's latency unless all of it is cached there. Of a request
        that the decider may leave where it decodes, the lesser of both ways counts.
        """
        overhead = whole.overhead
        ones = np.ones_like(self._prompt)
        steps = StepFloors(deployment, self._evaluator.coefficients)
        tail = steps.prefill_ps(ones, self._prompt - 1)
        elsewhere = self._make_floors(pool)
        way = overhead.last_token_ps + overhead.before_queue_ps + overhead.before_queue_ps_per_token * self._prompt
        lead = elsewhere.prefill + way
        if deployment.disaggregation.name != "always":
            # Direct: `whole.prefill`, of which the tail counts as such below.
            lead = np.minimum(lead, np.maximum(whole.prefill - tail, 0.0))
        return replace(
            whole,
            lead=lead,
            prefill=np.minimum(tail, whole.prefill),
            work=steps.work_ps(self._prompt, self._output, ones, self._prompt - 1),
        )

    def _make_floors(self, deployment: Deployment) -> _Floors:
        coefficients = self._evaluator.coefficients
        overhead = build_overhead(deployment, coefficients)
        steps = StepFloors(deployment, coefficients)
        block = deployment.block_size
        cached = self._shareable // block * block if deployment.enable_prefix_caching else np.zeros_like(self._prompt)
        new = self._prompt - cached
        before = overhead.gateway_ps + overhead.before_queue_ps + overhead.before_queue_ps_per_token * self._prompt
        return _Floors(
            before=before.astype(np.float64),
            lead=np.zeros(len(self._prompt)),
            prefill=steps.prefill_ps(new, cached),
            decode=steps.decode_ps(self._prompt, self._output),
            work=steps.work_ps(self._prompt, self._output, new, cached),
            gap=steps.gap_ps(int(self._prompt.min())),
            overhead=overhead,
        )


@dataclass(slots=True)
class _Case:
    """One deployment under one workload; times in ps."""

    deployment: Deployment
    floors: _Floors
    served: npt.NDArray[np.bool_]  # what the engine takes if admission lets it pass
    arrival: Array
    output: Ints
    tokens: Ints
    limit: float
    users: int
    think: float  # of all users of a closed loop together
    reactive: bool  # some requests arrive when others have ended: `arrival` is a lower bound
    everybody: bool  # all of `served` is served, as far as the time limit allows
    seats_held: bool  # a request that has a seat keeps it: preemption cannot happen
    request_slo: Mapping[str, float]

    def metrics(self, cost_per_hour: float) -> dict[str, float]:
        """Bounds by flat metric."""
        low = self._latencies()
        rates = self._rates()
        tokens_per_s = rates["output_tokens_per_s"]
        low["cost_per_million_output_tokens"] = cost_per_hour / (tokens_per_s * 3600) * 1e6 if tokens_per_s else 0.0
        if "duration_s" in rates:
            low["duration_s"] = rates.pop("duration_s")
        return {name: value * (1 - ROUNDING) for name, value in low.items()} | {
            name: value * (1 + ROUNDING) for name, value in rates.items()
        }

    # -- latencies ---------------------------------------------------------------------------------------------------

    def _latencies(self) -> dict[str, float]:
        floors, served = self.floors, self.served
        ttft, e2e = floors.ttft[served], floors.e2e[served]
        steps = self.output[served] - 1
        overhead = floors.overhead.last_token_ps - floors.overhead.first_token_ps
        tpot = ((floors.decode[served] + overhead) / np.maximum(steps, 1))[steps > 0]
        if self.limit < math.inf:  # a wait that the end of the run cuts short counts as it is
            ttft = np.zeros_like(ttft) if self.reactive else np.minimum(ttft, self.limit - self.arrival[served])
        found = _distribution("ttft_ms", ttft, self.everybody)
        found |= _distribution("tpot_ms", tpot, self.everybody and self.limit == math.inf)
        found |= _distribution("e2e_ms", e2e, self.everybody and self.limit == math.inf)
        if len(tpot):
            found |= _distribution("itl_ms", np.array([floors.gap * (1 - BIN)]), False)
        for name, value in self._under_load().items():
            found[name] = max(value, found[name])
        return found

    def _starts(self) -> tuple[Array, Array] | None:
        """(when requests queue, lower bounds on the k-th start), if something must wait at all."""
        if self.reactive or not self.everybody or not self.seats_held:
            return None
        queued = np.sort((self.arrival + self.floors.before)[self.served])
        finishes = finish_floors(queued, self.floors.work[self.served], self.deployment.replicas)
        seat_time = (self.floors.prefill + self.floors.decode)[self.served]
        seats = self.deployment.replicas * self.deployment.max_num_seqs
        starts = start_floors(queued, seat_time, seats, finishes)
        return (queued, starts) if float(np.max(starts - queued)) > 0 else None

    def _under_load(self) -> dict[str, float]:
        """TTFT where there are too few seats."""
        waits = self._starts()
        if waits is None:
            return {}
        queued, starts = waits
        first_token = self.floors.overhead.first_token_ps
        prefill = self.floors.prefill[self.served]
        arrival = self.arrival[self.served]
        if self.limit == math.inf:
            mean = float(starts.mean() + prefill.mean()) + first_token - float(arrival.mean())
        else:
            mean = float(np.minimum(starts + prefill.min() + first_token, self.limit).mean() - arrival.mean())
        found = {"ttft_mean_ms": mean / PS_PER_MS}
        if self.limit == math.inf:
            shortest = float((self.floors.before[self.served] + prefill).min()) + first_token
            n = len(starts)
            for percent in (50, 90, 95, 99, 100):
                wait = wait_floor(queued, starts, (n - 1) * percent // 100)
                name = flat_name("ttft_ms", f"p{percent}" if percent < 100 else "max")
                found[name] = (wait + shortest) / PS_PER_MS if wait else 0.0
        return found

    # -- rates -------------------------------------------------------------------------------------------------------

    def _rates(self) -> dict[str, float]:
        """Ceilings on rates; with them `duration_s`, a floor."""
        served, replicas = self.served, self.deployment.replicas
        work = np.maximum(self.floors.work[served], 1.0)
        output, total = self.output[served], self.tokens[served]

        def ceiling(amount: npt.NDArray[Any]) -> float:
            """Of a sum over requests a second: what `replicas` could serve of those that give most for their work."""
            return float(np.max(amount / work)) * replicas * PS_PER_S

        good = self._can_be_good()
        found = {
            "requests_per_s": ceiling(np.ones(len(work))),
            "output_tokens_per_s": ceiling(output),
            "total_tokens_per_s": ceiling(total),
            "goodput_rps": ceiling(np.ones(len(work))) if good else 0.0,
        }
        offered = len(self.arrival) if self.reactive else int((self.arrival <= self.limit).sum())
        if not self.reactive or self.everybody:
            found["slo_attainment"] = good / offered
        duration = self._duration()
        if duration is not None:
            seconds = duration / PS_PER_S
            found["duration_s"] = seconds
            sums = (len(work), float(output.sum()), float(total.sum()), good)
            for name, amount in zip(list(found)[:4], sums, strict=True):
                found[name] = min(found[name], amount / seconds)
        return found

    def _duration(self) -> float | None:
        """From the first arrival to the last answer, or to the time limit if that comes first, at least."""
        if not self.everybody:
            return None
        work, e2e = self.floors.work[self.served], self.floors.e2e[self.served]
        replicas = self.deployment.replicas
        if self.users:
            chains = (float(e2e.sum()) + self.think) / self.users
            return max(float(work.sum()) / replicas, chains)
        start = float(self.arrival.min())
        order = np.argsort(self.arrival[self.served], kind="stable")
        arrival = self.arrival[self.served][order] - start
        still = np.cumsum(work[order][::-1])[::-1] / replicas  # what comes from here on
        last = max(float(np.max(arrival + still)), float(np.max(arrival + e2e[order])))
        return min(last, self.limit - start)

    def _can_be_good(self) -> int:
        """How many requests can meet the limits that goodput holds each of them to."""
        good = self.served.copy()
        steps = np.maximum(self.output - 1, 1)
        overhead = self.floors.overhead
        tpot = (self.floors.decode + overhead.last_token_ps - overhead.first_token_ps) / steps
        floors = {"ttft_ms": self.floors.ttft, "e2e_ms": self.floors.e2e, "tpot_ms": np.where(self.output > 1, tpot, 0)}
        for name, limit in self.request_slo.items():
            good &= floors[name] * (1 - ROUNDING) <= limit * PS_PER_MS
        count = int(good.sum())
        waits = self._starts() if "ttft_ms" in self.request_slo else None
        if waits is not None:
            late = waiting_longer(*waits, self.request_slo["ttft_ms"] * PS_PER_MS * (1 + ROUNDING))
            count = min(count, int(self.served.sum()) - late)
        return count


def _think_ps(workload: Workload, served: npt.NDArray[np.bool_]) -> float:
    """The time that all users of a closed loop think before what is `served`, together, at least; 0 in an open one."""
    if not workload.users:
        return 0.0
    starts = int(served.sum()) if workload.follows is None else int((served & (workload.follows < 0)).sum())
    between = float(workload.think_time_ps) * max(0, starts - workload.users)
    return between + float(workload.arrival_ps[served].sum())  # zeros but for those that follow another


def _distribution(name: str, floors: Array, everybody: bool) -> dict[str, float]:
    """Flat metrics of the floors; where it is not known whose values count, the least floor bounds them all."""
    if not len(floors):
        return {}
    counted = floors if everybody else floors.min(keepdims=True)
    values = distribution(counted / PS_PER_MS)
    return {flat_name(name, statistic): value for statistic, value in values.items() if value is not None}
