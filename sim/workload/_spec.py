"""The workload part of a spec file: what it may say, checked once, before anything is built."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, SerializeAsAny, model_validator

from sim.errors import InputError
from sim.workload._validation import (
    MAX_SECONDS,
    Count,
    Positive,
    StrictModel,
    WholeNumber,
    one_of,
    validated,
)
from sim.workload.distributions import Constant, Distribution, NonZeroDistribution
from sim.workload.durations import ConstantSeconds, SecondsDistribution
from sim.workload.presets import PRESETS
from sim.workload.shapes import Shape

SLO_CLASS_PRIORITY = {"critical": 4, "standard": 3, "batch": -1, "sheddable": -2, "background": -3}
"""Priority of each SLO class as the llm-d router counts it: higher is more urgent, negative may be shed."""

SloClass = Literal["critical", "standard", "batch", "sheddable", "background"]
Process = Literal["poisson", "gamma", "weibull", "constant", "normalized-poisson", "closed"]
TraceFormat = Literal["mooncake", "azure", "csv", "tracev2", "jsonl", "servegen"]

MAX_REQUESTS = 20_000_000


class Stage(StrictModel):
    """A stretch of constant load."""

    rate_rps: Positive
    duration_s: float = Field(gt=0, le=MAX_SECONDS)


class Arrival(StrictModel):
    """When requests come. `constant` is evenly spaced; `normalized-poisson` is what inference-perf calls constant; a
    `shape` changes the rate over time.
    """

    process: Process
    rate_rps: Positive | None = None
    cv: float | None = Field(default=None, ge=0.01, le=100)
    users: WholeNumber | None = Field(default=None, ge=1, le=MAX_REQUESTS)
    think_time_s: float | None = Field(default=None, ge=0, le=MAX_SECONDS)
    stages: list[Stage] | None = Field(default=None, min_length=1)
    shape: Shape | None = None

    @model_validator(mode="after")
    def _fields_fit_the_process(self) -> Arrival:
        closed = self.process == "closed"
        self._refuse(("rate_rps", "cv", "stages", "shape") if closed else ("users", "think_time_s"))
        if closed:
            if self.users is None:
                raise InputError("users", "is required with process closed: the number of users")
            return self
        if self.process in ("gamma", "weibull"):
            if self.cv is None:
                raise InputError("cv", f"is required with process {self.process}: sd / mean of the gaps")
        else:
            self._refuse(("cv",))
        if self.rate_rps is None and self.stages is None:
            raise InputError("rate_rps", "is required (or stages): requests per second")
        if self.rate_rps is not None and self.stages is not None:
            raise InputError("rate_rps", "contradicts stages, which have rates of their own: give one of them")
        if self.shape is not None and self.stages is not None:
            raise InputError("shape", "contradicts stages: give one of them")
        return self

    def _refuse(self, names: tuple[str, ...]) -> None:
        for name in names:
            if getattr(self, name) is not None:
                raise InputError(name, f"has no meaning with process {self.process}")

    @property
    def load_stages(self) -> list[Stage]:
        """The stages given, or none."""
        return self.stages or []


class WorkloadSpec(StrictModel):
    """What every kind of workload has. Made by `parse_workload`."""

    kind: str
    name: str | None = None
    arrival: Arrival | None = None
    num_requests: WholeNumber | None = Field(default=None, ge=1, le=MAX_REQUESTS)
    duration_s: float | None = Field(default=None, gt=0, le=MAX_SECONDS)
    time_limit_s: float | None = Field(default=None, ge=1e-6, le=MAX_SECONDS)
    slo_class: SloClass | None = None
    tenant: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """The spec as plain data, presets resolved; `parse_workload` reads it back to an equal spec."""
        return self.model_dump(exclude_none=True)


class SharedPrefixSpec(WorkloadSpec):
    """inference-perf's `shared_prefix`: requests cycle through num_groups x num_prompts_per_group fixed prompts."""

    kind: Literal["shared_prefix"] = "shared_prefix"
    num_groups: WholeNumber = Field(ge=1, le=1_000_000)
    num_prompts_per_group: WholeNumber = Field(ge=1, le=1_000_000)
    system_prompt_len: Distribution
    question_len: Distribution
    output_len: NonZeroDistribution

    @model_validator(mode="after")
    def _prompts_can_be_built(self) -> SharedPrefixSpec:
        prompts = self.num_groups * self.num_prompts_per_group
        if prompts > MAX_REQUESTS:
            raise InputError("num_prompts_per_group", f"makes {prompts:,} prompts, more than {MAX_REQUESTS:,}")
        lengths = (self.system_prompt_len, self.question_len)
        if all(isinstance(length, Constant) and length.value == 0 for length in lengths):
            raise InputError("question_len", "must be at least 1 where system_prompt_len is 0")
        return self


class PrefixSpec(StrictModel):
    """`groups` shared prefixes of `tokens` each; a request takes one at random, in front of its own input."""

    groups: WholeNumber = Field(ge=1, le=10_000_000)
    tokens: Distribution


class LengthsSpec(WorkloadSpec):
    """Lengths drawn for each request. `input` counts what follows the shared prefix, where there is one."""

    kind: Literal["lengths"] = "lengths"
    input: NonZeroDistribution
    output: NonZeroDistribution
    prefix: PrefixSpec | None = None


class SessionsSpec(WorkloadSpec):
    """Conversations: the prompt of a turn is all that was said before and a new question, and comes `think_time_s`
    after the answer before. What arrives is a session: its first turn.

    `first_input` (default: as `input`) is the first prompt behind the shared prefix, `input` every later question. A
    session ends before the turn that would take its context, the answer included, beyond `max_context`; a first turn
    is cut to it. `num_sessions` or `duration_s` (or stages) says how many sessions begin, and each runs to its end;
    with `num_requests` the last one is cut short.
    """

    kind: Literal["sessions"] = "sessions"
    turns: NonZeroDistribution
    first_input: NonZeroDistribution | None = None
    input: NonZeroDistribution
    output: NonZeroDistribution
    think_time_s: SecondsDistribution = ConstantSeconds(value=0.0)
    prefix: PrefixSpec | None = None
    max_context: WholeNumber | None = Field(default=None, ge=2)
    num_sessions: WholeNumber | None = Field(default=None, ge=1, le=MAX_REQUESTS)


class TraceSpec(WorkloadSpec):
    """Requests read from a file (for ServeGen: drawn from a folder of clients), from `start_s` of its time on.

    With `arrival`, only their lengths and content are taken, in the file's order. Where the file names sessions,
    `sessions: growing` says that a prompt at least as long as the prompt and answer before in its session begins with
    them, and `closed` moreover that it waits for that answer (the file must say when it ended), its user thinking as
    long as then; `recorded` leaves them as the file has them.
    """

    kind: Literal["trace"] = "trace"
    trace: str = Field(min_length=1)
    format: TraceFormat | None = None
    arrival_scale: float | None = Field(default=None, gt=0)
    start_s: float | None = Field(default=None, ge=0, le=MAX_SECONDS)
    max_requests: Count | None = None
    sessions: Literal["recorded", "growing", "closed"] = "recorded"

    @model_validator(mode="after")
    def _one_clock(self) -> TraceSpec:
        if self.arrival is not None and self.arrival_scale is not None:
            raise InputError("arrival_scale", "scales the trace's own times, which arrival replaces: give one of them")
        if self.arrival is not None and self.sessions == "closed":
            raise InputError("sessions", "closed needs the trace's own times, which arrival replaces")
        return self


class Client(StrictModel):
    """One of the sources of a mix: its workload, and its share of the requests where they have a common arrival."""

    share: Positive | None = None
    workload: SerializeAsAny[WorkloadSpec]


class ClientsSpec(WorkloadSpec):
    """Several workloads at once: with a common `arrival` each request is a client's by `share`; without, each client
    has an arrival of its own and the streams are merged."""

    kind: Literal["clients"] = "clients"
    clients: list[Client] = Field(min_length=1)

    def to_dict(self) -> dict[str, Any]:
        own = self.model_dump(exclude_none=True, exclude={"clients"})
        own["clients"] = [
            ({} if client.share is None else {"share": client.share}) | client.workload.to_dict()
            for client in self.clients
        ]
        return own


_KINDS: dict[str, type[WorkloadSpec]] = {
    "shared_prefix": SharedPrefixSpec,
    "lengths": LengthsSpec,
    "sessions": SessionsSpec,
    "trace": TraceSpec,
    "clients": ClientsSpec,
}
WORKLOAD_KINDS = ("preset", *_KINDS)
"""What `kind` may say."""


def parse_workload(raw: Mapping[str, Any], field: str = "workload") -> WorkloadSpec:
    """The checked spec of `raw`; a preset becomes the kind it stands for, with what else `raw` gives on top.

    `kind` may be left out where `preset`, `trace` or `clients` says it. Raises InputError with the path of the wrong
    field behind `field` (``workload.arrival.rate_rps``).
    """
    spec = _parse(raw, field)
    if isinstance(spec, ClientsSpec):
        _check_clients(spec, field)
    else:
        _check_end(spec, field)
    return spec


def _parse(raw: Any, field: str, common_arrival: bool = False) -> WorkloadSpec:
    if not isinstance(raw, Mapping):
        raise InputError(field, f"must be a mapping with kind ({', '.join(WORKLOAD_KINDS)}), got {raw!r}")
    fields = dict(raw)
    kind = fields.pop("kind", None) or next((k for k in ("preset", "trace", "clients") if k in fields), None)
    if kind is None:
        raise InputError(f"{field}.kind", f"is required: one of {', '.join(WORKLOAD_KINDS)}")
    if kind == "preset":
        given = "arrival" in fields
        fields = _resolve_preset(fields, field)
        if common_arrival and not given:
            fields.pop("arrival", None)
        kind = fields.pop("kind")
    if not isinstance(kind, str) or kind not in _KINDS:
        raise InputError(f"{field}.kind", one_of(kind, WORKLOAD_KINDS))
    if kind == "clients":
        fields["clients"] = _parse_clients(fields.get("clients"), "arrival" in fields, f"{field}.clients")
    return validated(_KINDS[kind], fields, field)


def _resolve_preset(fields: dict[str, Any], field: str) -> dict[str, Any]:
    name = fields.pop("preset", None)
    if name is None:
        raise InputError(f"{field}.preset", f"is required: one of {', '.join(PRESETS)}")
    if not isinstance(name, str) or name not in PRESETS:
        raise InputError(f"{field}.preset", one_of(name, PRESETS))
    return {"name": name, **PRESETS[name], **fields}


def _parse_clients(raw: Any, common_arrival: bool, field: str) -> list[Client]:
    if not isinstance(raw, list):
        raise InputError(field, f"must be a list of workloads, got {raw!r}")
    clients = []
    for i, entry in enumerate(raw):
        where = f"{field}[{i}]"
        if isinstance(entry, Mapping) and (entry.get("kind") == "clients" or "clients" in entry):
            raise InputError(where, "must be a workload of another kind: clients cannot be nested")
        fields = dict(entry) if isinstance(entry, Mapping) else entry
        share = fields.pop("share", None) if isinstance(fields, dict) else None
        workload = _parse(fields, where, common_arrival)
        if workload.time_limit_s is not None:
            raise InputError(f"{where}.time_limit_s", "belongs to the whole workload, not to one client")
        clients.append(validated(Client, {"share": share, "workload": workload}, where))
    return clients


def _check_end(spec: WorkloadSpec, field: str) -> None:
    """Exactly one thing ends a workload: a count, a duration, the stages, or the trace."""
    arrival, given = spec.arrival, []
    ends = ("num_requests", "duration_s", "num_sessions")
    allowed = "num_requests, duration_s, stages" + (", num_sessions" if isinstance(spec, SessionsSpec) else "")
    if arrival is None:
        if not isinstance(spec, TraceSpec):
            raise InputError(f"{field}.arrival", "is required: {process, rate_rps}, or process closed with users")
    elif arrival.process == "closed":
        if spec.num_requests is None and not isinstance(spec, TraceSpec) and not getattr(spec, "num_sessions", None):
            raise InputError(
                f"{field}.num_requests", "is required with process closed (time_limit_s may end it sooner)"
            )
    elif arrival.stages is not None:
        given.append("arrival.stages")
    elif arrival.shape is not None and arrival.shape.end_s < math.inf:
        given.append("arrival.shape")
    given += [name for name in ends if getattr(spec, name, None) is not None]
    if len(given) > 1:
        raise InputError(f"{field}.{given[-1]}", f"contradicts {given[0]}: give one of {allowed}")
    if not given and not isinstance(spec, TraceSpec):
        raise InputError(
            f"{field}.num_requests", "is required (or duration_s, or arrival.stages): what ends the workload"
        )
    if arrival is not None and arrival.process == "closed" and spec.duration_s is not None:
        raise InputError(
            f"{field}.duration_s", "has no meaning with process closed: give num_requests and time_limit_s"
        )


def _check_clients(spec: ClientsSpec, field: str) -> None:
    if spec.slo_class is not None or spec.tenant is not None:
        name = "slo_class" if spec.slo_class is not None else "tenant"
        raise InputError(f"{field}.{name}", "belongs to each of the clients")
    if spec.arrival is not None:
        _check_end(spec, field)
    for name in ("num_requests", "duration_s"):
        if spec.arrival is None and getattr(spec, name) is not None:
            raise InputError(f"{field}.{name}", "needs a common arrival; without one each client has its own end")
    for i, client in enumerate(spec.clients):
        where = f"{field}.clients[{i}]"
        if spec.arrival is None:
            if client.share is not None:
                raise InputError(f"{where}.share", "needs a common arrival; without one each client has its own rate")
            if client.workload.arrival is not None and client.workload.arrival.process == "closed":
                raise InputError(f"{where}.arrival.process", "closed is for the whole workload, not for one client")
            _check_end(client.workload, where)
            continue
        if client.share is None:
            raise InputError(f"{where}.share", "is required with a common arrival: this client's part of the requests")
        for name in ("arrival", "num_requests", "num_sessions", "duration_s", "arrival_scale"):
            if getattr(client.workload, name, None) is not None:
                raise InputError(f"{where}.{name}", "contradicts the common arrival of the clients")


def has_shape(spec: WorkloadSpec) -> bool:
    """Whether some arrival rate changes with the time of day, so to speak: at other rates the times must stay."""
    if isinstance(spec, ClientsSpec) and any(has_shape(client.workload) for client in spec.clients):
        return True
    return spec.arrival is not None and spec.arrival.shape is not None


def at_rate(spec: WorkloadSpec, scale: float) -> WorkloadSpec:
    """The same workload with `scale` times the arrival rate, over the same time: numbers of requests grow with it."""
    changes: dict[str, Any] = {}
    arrival = spec.arrival
    if arrival is not None:
        rates: dict[str, Any] = {}
        if arrival.rate_rps is not None:
            rates["rate_rps"] = arrival.rate_rps * scale
        if arrival.stages is not None:
            stages = [stage.model_copy(update={"rate_rps": stage.rate_rps * scale}) for stage in arrival.stages]
            rates["stages"] = stages
        changes["arrival"] = arrival.model_copy(update=rates)
    elif isinstance(spec, TraceSpec):  # its requests are what they are, and come closer
        return spec.model_copy(update={"arrival_scale": (spec.arrival_scale or 1.0) / scale})
    for name in ("num_requests", "num_sessions"):
        count = getattr(spec, name, None)
        if count is not None:
            changes[name] = max(1, round(count * scale))
    if isinstance(spec, ClientsSpec) and arrival is None:
        clients = [c.model_copy(update={"workload": at_rate(c.workload, scale)}) for c in spec.clients]
        changes["clients"] = clients
    return spec.model_copy(update=changes)
