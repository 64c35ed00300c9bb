"""What limits a plan, by counterfactual: the same requests again, with one thing at a time doubled or halved."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from planner.goals import metric_values, request_slo
from planner.parameters import to_deployment
from planner.plan import Plan, make_workload
from sim.catalog import check_tensor_parallel
from sim.deployment import Deployment, PolicySpec
from sim.errors import InputError
from sim.latency import Coefficients
from sim.memory import kv_capacity
from sim.simulate import simulate

if TYPE_CHECKING:
    from sim.result import Result
    from sim.workload import Workload

BEFORE_ENGINE = "HTTP, tokenizer and gateway before the engine"

Change = Callable[[Deployment, Coefficients], tuple[Deployment, Coefficients]]


@dataclass(frozen=True, slots=True)
class Counterfactual:
    """One changed thing. `resource` names what it relieves, empty where that is a bit of everything (more GPUs);
    `buyable` is whether a plan can have it."""

    name: str
    resource: str
    buyable: bool
    apply: Change


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a counterfactual gave: flat metrics and saturation, or why it cannot be."""

    change: Counterfactual
    metrics: dict[str, float]
    saturation: str | None = None
    refused: str | None = None


@dataclass(frozen=True, slots=True)
class WhatIf:
    """A plan as it is, and under every counterfactual.

    `time_parts` is where its replicas' time goes (shares that add up to 1; empty where the latency model does not
    say), `full` for what share of the time seats or KV blocks are all taken while requests wait.
    """

    base: dict[str, float]
    saturation: str
    outcomes: list[Outcome]
    time_parts: dict[str, float] = dataclasses.field(default_factory=dict)
    full: dict[str, float] = dataclasses.field(default_factory=dict)


def what_if(plan: Plan, say: Callable[[str], None] = lambda name: None) -> WhatIf:
    """Simulate `plan` and its counterfactuals, the same requests each time. Raises InputError where it cannot run."""
    from planner.evaluate import load_coefficient_set, load_named_model, priced_gpus

    gpu = plan.deployment["gpu"]
    model = load_named_model(plan.model, plan.folder)
    deployment = to_deployment(plan.deployment, model, priced_gpus((gpu,), plan.prices))
    coefficients = load_coefficient_set(plan.coefficients, plan.folder)
    workload = make_workload(plan.workload, plan.folder, plan.seed)
    slo = request_slo(plan.constraints) or None
    say("as it is")
    as_it_is = simulate(deployment, workload, plan.seed, coefficients=coefficients, request_slo=slo, sampled=True)
    base, saturation = metric_values(as_it_is.summary()), as_it_is.summary()["saturation"]
    outcomes = []
    for change in counterfactuals(deployment):
        say(change.name)
        try:
            changed, set_ = change.apply(deployment, coefficients)
            metrics, ends = _simulated(changed, workload, plan.seed, set_, slo)
            outcomes.append(Outcome(change, metrics, ends))
        except InputError as error:
            outcomes.append(Outcome(change, {}, refused=error.problem))
    return WhatIf(base, saturation, outcomes, as_it_is.time_parts(), full_shares(as_it_is))


def full_shares(result: Result) -> dict[str, float]:
    """For what share of the sampled times requests waited with every seat taken, with no KV block to spare (under 2%
    left), and for another reason: the token budget, or the step that runs."""
    samples = {"seats": 0, "KV blocks": 0, "the next step": 0}
    total = 0
    for timeline in result.timelines():
        waits = timeline.waiting > 0
        seats = waits & (timeline.running >= result.deployment.max_num_seqs)
        blocks = waits & ~seats & (timeline.kv_usage > 0.98)
        total += len(waits)
        for name, times in (("seats", seats), ("KV blocks", blocks), ("the next step", waits & ~seats & ~blocks)):
            samples[name] += int(times.sum())
    return {name: count / total for name, count in samples.items()} if total else {}


def _simulated(
    deployment: Deployment,
    workload: Workload,
    seed: int,
    coefficients: Coefficients,
    slo: Mapping[str, float] | None,
) -> tuple[dict[str, float], str]:
    summary = simulate(deployment, workload, seed, coefficients=coefficients, request_slo=slo).summary()
    flat = metric_values(summary)
    return flat, summary["saturation"]


def counterfactuals(deployment: Deployment) -> list[Counterfactual]:
    """What may be asked of a deployment: what can be bought or set first, then what no one sells."""
    pools = deployment.prefill_replicas > 0
    found = [
        Counterfactual("one more replica", "", True, _deployed(_more_replicas)),
        *([Counterfactual("one more prefill replica", "", True, _deployed(_more_prefill))] if pools else []),
        Counterfactual("twice the tensor parallelism", "", True, _deployed(_wider)),
        Counterfactual("twice the seats", "seats (max_num_seqs)", True, _deployed(_more_seats)),
        Counterfactual("twice the token budget", "the token budget of a step", True, _deployed(_more_tokens)),
    ]
    if deployment.replicas > 1 and _live_router(deployment) != deployment:
        name = "the same routing on live state"
        found.append(Counterfactual(name, "what the router does not know yet", False, _deployed(_live_router)))
    found += [
        *(
            [Counterfactual("a KV transfer at once", "the KV transfer", False, _deployed(_no_transfer))]
            if pools
            else []
        ),
        Counterfactual("twice the KV cache", "KV blocks", False, _deployed(_more_blocks)),
        Counterfactual("weights read twice as fast", "reading weights", False, _kernels(_faster_weights)),
        Counterfactual("KV cache read twice as fast", "reading the KV cache", False, _kernels(_faster_cache)),
        Counterfactual("arithmetic twice as fast", "compute", False, _kernels(_faster_arithmetic)),
    ]
    if deployment.tensor_parallel_size > 1:
        found.append(Counterfactual("links twice as fast", "links between GPUs", False, _kernels(_faster_links)))
    found += [
        Counterfactual("half the engine's overhead", "the engine's overhead", False, _halved("engine")),
        Counterfactual("half the time before the engine", BEFORE_ENGINE, False, _halved("request")),
    ]
    return found


# -- deployments --------------------------------------------------------------------------------------------------


def _deployed(change: Callable[[Deployment], Deployment]) -> Change:
    return lambda deployment, coefficients: (change(deployment), coefficients)


def _more_replicas(deployment: Deployment) -> Deployment:
    return replace(deployment, replicas=deployment.replicas + 1)


def _more_prefill(deployment: Deployment) -> Deployment:
    return replace(deployment, prefill_replicas=deployment.prefill_replicas + 1)


def _no_transfer(deployment: Deployment) -> Deployment:
    return replace(deployment, kv_transfer_gb_per_s=1e9, kv_transfer_latency_ms=0.0)


def _wider(deployment: Deployment) -> Deployment:
    size = 2 * deployment.tensor_parallel_size
    check_tensor_parallel(deployment.model, size, "tensor_parallel_size")
    if size > deployment.gpu.max_gpus_per_node:
        raise InputError("tensor_parallel_size", f"{size} GPUs do not fit into one machine")
    return replace(deployment, tensor_parallel_size=size)


def _more_seats(deployment: Deployment) -> Deployment:
    seats = 2 * deployment.max_num_seqs
    return replace(deployment, max_num_seqs=seats, max_num_batched_tokens=max(deployment.max_num_batched_tokens, seats))


def _more_tokens(deployment: Deployment) -> Deployment:
    return replace(deployment, max_num_batched_tokens=2 * deployment.max_num_batched_tokens)


def _live_router(deployment: Deployment) -> Deployment:
    """The plan's own routing policy, with the replicas' state as it is now and their caches as they are."""
    routing = deployment.routing
    if routing.name == "weighted":
        routing = PolicySpec(routing.name, {**routing.parameters, "prefix_index": "precise"})
    return replace(deployment, routing=routing, snapshot_interval_ms=0.0)


def _more_blocks(deployment: Deployment) -> Deployment:
    return replace(deployment, num_gpu_blocks_override=2 * kv_capacity(deployment).num_blocks)


# -- kernels and overheads ----------------------------------------------------------------------------------------


def _kernels(change: Callable[[Any], Any]) -> Change:
    """Change the efficiencies of the plan's GPU alone; they may exceed the datasheet: that is the question."""

    def apply(deployment: Deployment, coefficients: Coefficients) -> tuple[Deployment, Coefficients]:
        name = deployment.gpu.name
        entry = change(coefficients.of_gpu(deployment.gpu))
        alike = {other: like for other, like in coefficients.alike.items() if other != name}
        return deployment, replace(coefficients, gpus={**coefficients.gpus, name: entry}, alike=alike)

    return apply


def _scaled(entry: Any, factor: float, *fields: str) -> Any:
    return replace(entry, **{name: factor * getattr(entry, name) for name in fields})


def _faster_weights(entry: Any) -> Any:
    tables = {
        kind: {k: _scaled(v, 2, "bandwidth") for k, v in getattr(entry, kind).items()} for kind in ("gemm", "moe")
    }
    return replace(entry, **tables)


def _faster_cache(entry: Any) -> Any:
    return replace(entry, attention=_scaled(entry.attention, 2, "decode_bandwidth", "decode_bandwidth_fp8"))


def _faster_arithmetic(entry: Any) -> Any:
    tables = {kind: {k: _scaled(v, 2, "compute") for k, v in getattr(entry, kind).items()} for kind in ("gemm", "moe")}
    return replace(entry, **tables, attention=_scaled(entry.attention, 2, "prefill_compute", "decode_compute"))


def _faster_links(entry: Any) -> Any:
    links = [_scaled(item, 2, "one_shot_bandwidth", "two_shot_bandwidth") for item in entry.all_reduce]
    return replace(entry, all_reduce=tuple(_scaled(item, 0.5, "one_shot_us", "two_shot_us") for item in links))


def _halved(part: str) -> Change:
    def apply(deployment: Deployment, coefficients: Coefficients) -> tuple[Deployment, Coefficients]:
        entry = getattr(coefficients, part)
        half = _scaled(entry, 0.5, *(field.name for field in dataclasses.fields(entry)))
        return deployment, replace(coefficients, **{part: half})

    return apply
