"""What a simulated run says: records, distributions, timelines, requests as CSV."""

from __future__ import annotations

import csv
import math
from array import array
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sim.cache_sources import cache_sources, tier_names
from sim.deployment import Deployment
from sim.engine.replica import NEVER, Replica
from sim.engine.requests import EXPIRED, REJECTED, SHED, RequestTable
from sim.engine.timeline import SampledReplica, Timeline
from sim.latency import (
    RequestOverhead,
)
from sim.latency.parts import IDLE, RESOURCES
from sim.memory import KVCapacity
from sim.metrics import (
    PS_PER_MS,
    PS_PER_S,
    Records,
    group_summary,
    inter_token_distribution,
    jain_index,
    saturation,
)
from sim.prefill_pool import PrefillPool
from sim.workload import Workload


def _floats(column: array[int]) -> npt.NDArray[np.float64]:
    """A column of times in ps, nan where they have not happened."""
    values = np.frombuffer(column, dtype=np.int64)
    return np.where(values < 0, np.nan, values.astype(np.float64))


class Result:
    """What happened in a simulated run; `table` and `replicas` are as the engine left them, in picoseconds."""

    def __init__(
        self,
        deployment: Deployment,
        workload: Workload,
        capacity: KVCapacity,
        overhead: RequestOverhead,
        table: RequestTable,
        replicas: list[Replica],
        request_slo: dict[str, float],
        prefill: PrefillPool | None = None,
    ) -> None:
        self.deployment = deployment
        self.workload = workload
        self.capacity = capacity
        self.overhead = overhead
        self.table = table
        self.replicas = replicas
        self.prefill = prefill  # None: without disaggregation
        self._request_slo = request_slo

    @cached_property
    def records(self) -> Records:
        """One entry a request, as the client saw it."""
        table, overhead = self.table, self.overhead
        limit = float(self.workload.time_limit_ps) or np.inf
        arrival = _floats(table.arrival_ps)
        first = _floats(table.first_token_ps) + overhead.first_token_ps
        finish = _floats(table.finish_ps) + overhead.last_token_ps
        first[first > limit] = np.nan
        finish[finish > limit] = np.nan
        outcome = np.frombuffer(table.outcome, dtype=np.int8)
        offered = arrival <= limit
        rejected, shed = offered & (outcome == REJECTED), offered & (outcome == SHED)
        expired = offered & (outcome == EXPIRED)
        served = offered & ~rejected & ~shed & ~expired
        ttft = first - arrival
        e2e = finish - arrival
        output = self.workload.output_tokens
        tpot = np.where(output > 1, (e2e - ttft) / np.maximum(output - 1, 1), np.nan)
        zeros = np.zeros(len(table), dtype=np.int64)
        waited = np.where(served & np.isnan(ttft), limit - arrival, ttft) if limit < np.inf else ttft
        started = _floats(table.scheduled_ps)
        cached, preemptions = (np.frombuffer(c, dtype=np.int32) for c in (table.cached_tokens, table.preemptions))
        if self.prefill is not None:
            elsewhere, of_prefill = self.prefill.disaggregated, self.prefill.table
            twice = _floats(of_prefill.scheduled_ps) + self.prefill.waited_ps(table)
            started = np.where(elsewhere, twice, started)
            cached = np.where(elsewhere, np.frombuffer(of_prefill.cached_tokens, dtype=np.int32), cached)
            preemptions = preemptions + np.frombuffer(of_prefill.preemptions, dtype=np.int32)
        return Records(
            arrival_ms=arrival / PS_PER_MS,
            queue_ms=(started - arrival - self._before_queue_ps()) / PS_PER_MS,
            ttft_ms=ttft / PS_PER_MS,
            ttft_floor_ms=waited / PS_PER_MS,
            tpot_ms=tpot / PS_PER_MS,
            e2e_ms=e2e / PS_PER_MS,
            prompt_tokens=self.workload.prompt_tokens,
            output_tokens=output,
            cached_tokens=cached.astype(np.int64),
            preemptions=preemptions.astype(np.int64),
            replica=np.frombuffer(table.replica, dtype=np.int32).astype(np.int64),
            slo_class=self.workload.slo_class if self.workload.slo_class is not None else zeros,
            stage=self.workload.stage if self.workload.stage is not None else zeros,
            offered=offered,
            completed=served & ~np.isnan(e2e),
            shed=shed,
            expired=expired,
            tenant=self.workload.tenant if self.workload.tenant is not None else zeros,
            rejected=rejected,
        )

    def _before_queue_ps(self) -> npt.NDArray[np.float64]:
        """How long each request takes from its arrival to the engine's queue if nothing holds it back."""
        overhead = self.overhead
        constant = overhead.gateway_ps + overhead.before_queue_ps
        return constant + overhead.before_queue_ps_per_token * self.workload.prompt_tokens.astype(np.float64)

    @cached_property
    def duration_s(self) -> float:
        """From the first arrival to the last answer, or to the time limit if it cut the run; in seconds."""
        records = self.records
        if not records.offered.any():
            return 0.0
        start = float(np.nanmin(records.arrival_ms))
        unfinished = records.offered & ~records.completed & ~records.shed & ~records.rejected & ~records.expired
        if unfinished.any():
            return self.workload.time_limit_ps / PS_PER_S - start / 1e3
        if not records.completed.any():
            return 0.0
        return float(np.nanmax(records.arrival_ms + records.e2e_ms) - start) / 1e3

    def summary(self) -> dict[str, Any]:
        """The object that `planner simulate --json` writes."""
        return self._summary

    @cached_property
    def _summary(self) -> dict[str, Any]:
        records, deployment, duration_s = self.records, self.deployment, self.duration_s
        everybody = np.ones(len(self.table), dtype=bool)
        summary = group_summary(records, everybody, duration_s, self._request_slo)
        cost = deployment.gpus * deployment.gpu.price_usd_per_hour
        tokens_per_hour = summary["output_tokens_per_s"] * 3600
        bins: dict[int, int] = {}
        for replica in self.replicas:
            for key, count in replica.stats.inter_token_bins().items():
                bins[key] = bins.get(key, 0) + count
        stats = [replica.stats for replica in self.replicas]
        hits, looked_up = (sum(getattr(s, name) for s in stats) for name in ("hit_tokens", "looked_up_tokens"))
        served_ps = duration_s * PS_PER_S * len(stats)
        share = 1 / served_ps if served_ps else 0.0
        return summary | {
            "duration_s": duration_s,
            "itl_ms": inter_token_distribution(bins),
            "gpus": deployment.gpus,
            "cost_per_hour": cost,
            "cost_per_million_output_tokens": cost / tokens_per_hour * 1e6 if tokens_per_hour else None,
            "preemptions": sum(s.preemptions for s in stats),
            **cache_sources(self.replicas, hits, looked_up),
            "kv_capacity_tokens": self.capacity.tokens,
            "max_model_len": self.capacity.max_model_len,
            "kv_utilization_mean": min(1.0, math.fsum(s.block_area for s in stats) * share / self.capacity.num_blocks),
            "seats_mean_utilization": min(1.0, math.fsum(s.seat_area for s in stats) * share / deployment.max_num_seqs),
            "replica_utilization_mean": min(1.0, sum(s.busy_ps for s in stats) * share),
            "saturation": saturation(records, self.workload.users > 0),
            "jain_index": jain_index(records, len(self.workload.tenants)),
            "classes": self._classes(),
            "tenants": self._tenants(),
            "stages": self._stages(),
            "replicas": [self._replica_summary(replica, self.table, i) for i, replica in enumerate(self.replicas)],
            **self._of_prefill_pool(hits, looked_up, sum(s.preemptions for s in stats)),
        }

    def _of_prefill_pool(self, hits: int, looked_up: int, preemptions: int) -> dict[str, Any]:
        """What a prefill pool adds and changes in a summary of the decode pool, with those counts."""
        prefill = self.prefill
        if prefill is None:
            return {}
        twice, found = prefill.decode_lookups(self.table)
        stats = [replica.stats for replica in prefill.replicas]
        hits += sum(s.hit_tokens for s in stats) - found
        looked_up += sum(s.looked_up_tokens for s in stats) - twice
        replicas = [self._replica_summary(replica, prefill.table, i) for i, replica in enumerate(prefill.replicas)]
        return prefill.summary(self.records.offered, self.duration_s) | {
            "preemptions": preemptions + sum(s.preemptions for s in stats),
            **cache_sources([*self.replicas, *prefill.replicas], hits, looked_up),
            "prefill_replicas": replicas,
            "ttft_parts_ms": prefill.ttft_parts_ms(self.table, self.overhead.first_token_ps),
        }

    def _classes(self) -> dict[str, Any]:
        """The same by SLO class, where the workload names classes."""
        names = self.workload.slo_classes
        if self.workload.slo_class is None:
            return {}
        records = self.records
        return {
            name: group_summary(records, records.slo_class == number, self.duration_s, self._request_slo)
            for number, name in enumerate(names)
        }

    def _tenants(self) -> dict[str, Any]:
        """The same by tenant, where the workload names tenants."""
        records = self.records
        return {
            name or "-": group_summary(records, records.tenant == number, self.duration_s, self._request_slo)
            for number, name in enumerate(self.workload.tenants)
        }

    def _stages(self) -> list[dict[str, Any]]:
        """The same by load stage; rates are over the stage's own duration."""
        records, left_s = self.records, self.workload.time_limit_ps / PS_PER_S or np.inf
        stages = []
        for number, planned_s in enumerate(self.workload.stage_duration_s):
            seconds = float(min(planned_s, left_s))  # a time limit cuts stages short
            left_s = max(0.0, left_s - planned_s)
            own = group_summary(records, records.stage == number, seconds, self._request_slo)
            stages.append({"duration_s": seconds} | own)
        return stages

    def _replica_summary(self, replica: Replica, table: RequestTable, number: int) -> dict[str, Any]:
        """What replica `number` of those that write to `table` did."""
        stats, limit = replica.stats, self.workload.time_limit_ps or NEVER
        if table is self.table:
            done = self.records.completed
        else:
            finish = np.frombuffer(table.finish_ps, dtype=np.int64)
            done = (finish >= 0) & (finish <= limit)
        duration_ps = self.duration_s * PS_PER_S
        return {
            "requests": stats.requests,
            "completed": int((done & (np.frombuffer(table.replica, dtype=np.int32) == number)).sum()),
            "utilization": min(1.0, stats.busy_ps / duration_ps) if duration_ps else 0.0,
            "peak_queue": stats.peak_waiting,
            **cache_sources([replica], stats.hit_tokens, stats.looked_up_tokens),
            "preemptions": stats.preemptions,
            "steps": stats.steps,
        }

    def timelines(self) -> list[Timeline]:
        """The state of each replica, of the decode pool where there are two, over time; empty unless the run was
        `sampled`."""
        return [replica.timeline() for replica in self.replicas if isinstance(replica, SampledReplica)]

    def time_parts(self) -> dict[str, float]:
        """Shares of the replicas' time from the first arrival to the last answer, by what it went to: `RESOURCES` and
        IDLE, which add up to 1. Empty unless the run was `sampled`, with the shipped latency model."""
        replicas = self.replicas if self.prefill is None else [*self.prefill.replicas, *self.replicas]
        found = [replica.time_parts() for replica in replicas if isinstance(replica, SampledReplica)]
        whole_ps = self.duration_s * PS_PER_S * len(found)
        if not whole_ps or not all(found):
            return {}
        shares = {name: math.fsum(parts[name] for parts in found) / whole_ps for name in RESOURCES}
        return shares | {IDLE: max(0.0, 1.0 - math.fsum(shares.values()))}

    def requests_csv(self, path: str | Path) -> None:
        """Write one row a request; times in seconds from the start of the run, empty where they have not come."""
        records, classes = self.records, self.workload.slo_classes
        arrival_s = records.arrival_ms / 1e3
        columns = {
            "arrival_s": arrival_s,
            "queue_ms": records.queue_ms,
            "first_token_s": arrival_s + records.ttft_ms / 1e3,
            "finish_s": arrival_s + records.e2e_ms / 1e3,
            "ttft_ms": records.ttft_ms,
            "tpot_ms": records.tpot_ms,
            "e2e_ms": records.e2e_ms,
        }
        counts = {
            "prompt_tokens": records.prompt_tokens,
            "output_tokens": records.output_tokens,
            "cached_tokens": records.cached_tokens,
            **self._tier_tokens(),
            "preemptions": records.preemptions,
            "replica": records.replica,
            "stage": records.stage,
        }
        if self.prefill is not None:
            counts["prefill_replica"] = np.frombuffer(self.prefill.table.replica, dtype=np.int32).astype(np.int64)
        if self.workload.session is not None:
            counts["session"] = self.workload.session
        with open(path, "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(["request", "outcome", "slo_class", *counts, *columns])
            for i in range(len(self.table)):
                times = ["" if np.isnan(column[i]) else f"{column[i]:.12g}" for column in columns.values()]
                writer.writerow(
                    [i, self._outcome(i), classes[records.slo_class[i]], *(c[i] for c in counts.values()), *times]
                )

    def _tier_tokens(self) -> dict[str, npt.NDArray[np.int64]]:
        """Tokens of each request's prompt that were loaded from each tier at its first admission."""
        tables = [self.table, *([self.prefill.table] if self.prefill is not None else [])]
        found = {}
        for number, name in enumerate(tier_names(self.replicas)):
            columns = [np.frombuffer(table.tier_tokens[number], dtype=np.int64) for table in tables]
            found[f"{name}_tokens"] = np.sum(columns, axis=0)
        return found

    def _outcome(self, index: int) -> str:
        records = self.records
        for name in ("completed", "shed", "expired", "rejected"):
            if getattr(records, name)[index]:
                return name
        return "unfinished" if records.offered[index] else "not offered"
