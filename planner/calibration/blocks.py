"""Which coefficients are fitted on which serving runs: the blocks of layer (b), in order."""

from __future__ import annotations

from collections.abc import Callable

from planner.calibration.serving import Block, Coefficient
from planner.measurements import MeasuredRun

HOPPER = ("H100-SXM-80GB", "H200-SXM-141GB")
BLACKWELL = ("B200-SXM-180GB",)
BLACKWELL_GPUS = ("B200-SXM-180GB", "B300-SXM-288GB")
SENT = ("open loop", "closed loop")
CLOSED_LOOP = ("ttft_mean", "tpot_mean")

Bounds = tuple[float, float]


def _of_gpus(gpus: tuple[str, ...], entry: str, **bounds: Bounds) -> tuple[Coefficient, ...]:
    return tuple(
        Coefficient(tuple(f"gpus.{gpu}.{entry}.{name}" for gpu in gpus), *limits) for name, limits in bounds.items()
    )


def _shared(section: str, **bounds: Bounds) -> tuple[Coefficient, ...]:
    return tuple(Coefficient((f"{section}.{name}",), *limits) for name, limits in bounds.items())


def _serves(model: str, gpus: tuple[str, ...], weights: str | None = None) -> Callable[[MeasuredRun], bool]:
    def chosen(run: MeasuredRun) -> bool:
        own = run.deployment.model.weight_format
        return run.gpu in gpus and model in run.model and (weights is None or own == weights)

    return chosen


def _open_loop(run: MeasuredRun) -> bool:
    """Of the open-loop train runs, those that say how many tokens were generated without a doubt."""
    return run.source == "vllm_open_loop_train" and not run.assumptions


def _inferencex(run: MeasuredRun) -> bool:
    return run.greedy


DENSE: dict[str, Bounds] = {
    "compute": (0.1, 1.0),
    "bandwidth": (0.3, 1.0),
    "launch_us": (0.0, 30.0),
    "host_us": (0.0, 200.0),
}
MOE: dict[str, Bounds] = {
    "compute": (0.05, 1.0),
    "bandwidth": (0.3, 1.0),
    "launch_us": (0.0, 120.0),
    "activation_passes": (1.0, 16.0),
    "host_us": (0.0, 1000.0),
}

BLOCKS: tuple[Block, ...] = (
    Block(
        "engine, on the open-loop runs of H100",
        _shared(
            "engine",
            layer_us=(0.0, 25.0),
            truncated_sampling_us=(0.0, 1500.0),
            truncated_sampling_us_per_million_logits=(0.0, 400.0),
            mixed_step_us=(0.0, 2000.0),
            eager_layer_us=(50.0, 1000.0),
        )
        + _shared("request", before_queue_us=(500.0, 12000.0), before_queue_us_per_token=(0.0, 15.0)),
        lambda run: _open_loop(run) or (_inferencex(run) and _serves("Llama", HOPPER)(run)),
        ("ttft_mean", "tpot_mean", "e2e_mean"),
        evaluations=5,
    ),
    Block(
        "the host, where scheduling is synchronous",
        _shared("engine", host_step_us=(0.0, 5000.0), host_sequence_us=(0.0, 60.0)),
        lambda run: (
            not run.deployment.async_scheduling and not run.mixture and run.gpu == HOPPER[0] and run.regime in SENT
        ),
        ("tpot_mean",),
    ),
    Block(
        "fp8 KV cache on Hopper",
        _of_gpus(HOPPER, "attention", decode_bandwidth_fp8=(0.2, 1.0)),
        lambda run: _inferencex(run) and _serves("Llama", HOPPER)(run),
        CLOSED_LOOP,
    ),
    Block(
        "mxfp4 experts on Hopper (Marlin)",
        _of_gpus(HOPPER, "moe.mxfp4", **MOE),
        _serves("gpt-oss", HOPPER),
        CLOSED_LOOP,
    ),
    Block(
        "block-scaled fp8 experts on Hopper",
        _of_gpus(HOPPER, "moe.fp8_block", **MOE),
        lambda run: run.gpu in HOPPER and run.mixture and run.deployment.model.quantization_group_size == 128,
        CLOSED_LOOP,
    ),
    Block(
        "dense fp4 and fp8 on Blackwell",
        _of_gpus(BLACKWELL, "gemm.nvfp4", **DENSE)
        + _of_gpus(BLACKWELL, "gemm.fp8", **DENSE)
        + _of_gpus(BLACKWELL, "attention", decode_bandwidth_fp8=(0.2, 1.0)),
        lambda run: _inferencex(run) and _serves("Llama", BLACKWELL)(run),
        CLOSED_LOOP,
    ),
    Block(
        "nvfp4 experts on Blackwell",
        _of_gpus(BLACKWELL, "moe.nvfp4", **MOE),
        lambda run: run.mixture and _serves("", BLACKWELL_GPUS, "nvfp4")(run),
        CLOSED_LOOP,
    ),
    Block(
        "block-scaled fp8 experts on Blackwell",
        _of_gpus(BLACKWELL, "moe.fp8_block", **MOE),
        lambda run: run.mixture and not run.assumptions and _serves("", BLACKWELL_GPUS, "fp8")(run),
        CLOSED_LOOP,
    ),
    Block(
        "mxfp4 experts on Blackwell",
        _of_gpus(BLACKWELL, "moe.mxfp4", **MOE),
        _serves("gpt-oss", BLACKWELL_GPUS),
        CLOSED_LOOP,
    ),
    Block(
        "int4 experts on Blackwell (Marlin)",
        _of_gpus(BLACKWELL, "moe.int4", **MOE),
        _serves("Kimi", BLACKWELL_GPUS, "int4"),
        CLOSED_LOOP,
    ),
)
