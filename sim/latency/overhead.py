"""What surrounds a request outside the engine: client, HTTP, tokenizer before it; streaming after it; the gateway."""

from __future__ import annotations

from sim.deployment import Deployment
from sim.errors import InputError
from sim.latency._base import RequestOverhead
from sim.latency.coefficient_set import Coefficients

GATEWAYS = ("none", "llm-d")


def _ps(us: float) -> int:
    return round(us * 1e6)


def build_overhead(deployment: Deployment, coefficients: Coefficients) -> RequestOverhead:
    """The overheads of a request to `deployment`; `InputError` if its gateway is unknown."""
    if deployment.gateway not in GATEWAYS:
        raise InputError("deployment.gateway", f"must be one of {', '.join(GATEWAYS)}, got {deployment.gateway!r}")
    request = coefficients.request
    return RequestOverhead(
        before_queue_ps=_ps(request.before_queue_us),
        before_queue_ps_per_token=_ps(request.before_queue_us_per_token),
        first_token_ps=_ps(request.first_token_us),
        last_token_ps=_ps(request.last_token_us),
        gateway_ps=_ps(request.gateway_us) if deployment.gateway == "llm-d" else 0,
    )
