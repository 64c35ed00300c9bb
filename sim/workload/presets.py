"""Named workloads: four published length profiles, and the shared-prefix workloads of the BLIS paper's measurements."""

from __future__ import annotations

from typing import Any


def _lengths(input_: tuple[int, int, int, int], output: tuple[int, int, int, int]) -> dict[str, Any]:
    def normal(mean: int, sd: int, low: int, high: int) -> dict[str, Any]:
        return {"dist": "normal", "mean": mean, "sd": sd, "min": low, "max": high}

    return {"kind": "lengths", "input": normal(*input_), "output": normal(*output)}


def _shared(system: int, question: int, output: int, *stages: tuple[float, float]) -> dict[str, Any]:
    return {
        "kind": "shared_prefix",
        "num_groups": 10,
        "num_prompts_per_group": 10,
        "system_prompt_len": system,
        "question_len": question,
        "output_len": output,
        "arrival": {
            "process": "normalized-poisson",
            "stages": [{"rate_rps": rate, "duration_s": duration} for rate, duration in stages],
        },
    }


PRESETS: dict[str, dict[str, Any]] = {
    # Token lengths as clipped normals (mean, sd, min, max), input and output: the presets of BLIS.
    "chatbot": _lengths((256, 100, 2, 800), (256, 100, 1, 1024)),
    "contentgen": _lengths((1024, 150, 10, 2048), (1024, 200, 10, 2048)),
    "summarization": _lengths((4096, 500, 100, 8192), (512, 150, 10, 2048)),
    "multidoc": _lengths((10240, 1200, 500, 20480), (1536, 300, 50, 4096)),
    # The workloads of the BLIS paper (arXiv 2610.14255), with the load stages that its measurements used.
    "general": _shared(100, 447, 248, (8, 600), (20, 600)),
    "general-lite": _shared(100, 447, 248, (2.5, 600), (6, 600)),
    "codegen": _shared(100, 466, 247, (5, 600), (10, 600)),
    "roleplay": _shared(150, 600, 251, (6, 1200)),
    "reasoning": _shared(100, 934, 1448, (1, 1200)),
}
"""Preset name -> the raw workload it stands for. Whatever a spec gives beside `preset` replaces these fields."""
