"""Coefficient documents and files: paths into them, defaults for other GPUs, and where everything came from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml

HEADER = """\
# Coefficient set of the step-time model. Every efficiency is a fraction of the GPU's datasheet figure and at most 1.
# `alike` names GPUs that are built like one with a table. `defaults` serves the others, by interconnect: medians over
# the GPUs that have a table; the all-reduce of `pcie` is that of the GPUs on PCIe.
# Written by `planner calibrate`; `provenance` says from what, with bounds and residuals (percent).
"""


def get_path(document: Mapping[str, Any], path: str) -> float:
    """The number at a dotted path (list entries by index; ``|`` stands for a dot inside a key)."""
    value: Any = document
    for key in path.split("."):
        value = value[int(key)] if isinstance(value, list) else value[key.replace("|", ".")]
    return float(value)


def set_path(document: dict[str, Any], path: str, value: float) -> None:
    """Sets the number at a dotted path."""
    *parents, last = path.split(".")
    node: Any = document
    for key in parents:
        node = node[int(key)] if isinstance(node, list) else node[key.replace("|", ".")]
    node[int(last) if isinstance(node, list) else last.replace("|", ".")] = value


def _median_table(tables: Sequence[Mapping[str, Mapping[str, float]]]) -> dict[str, dict[str, float]]:
    """By number format and coefficient, the median over the tables that have the format."""
    formats = sorted({fmt for table in tables for fmt in table})
    merged = {}
    for fmt in formats:
        entries = [table[fmt] for table in tables if fmt in table]
        merged[fmt] = {key: _rounded(np.median([entry[key] for entry in entries])) for key in entries[0]}
    return merged


def _rounded(value: Any) -> float:
    return float(f"{float(value):.4g}")


def default_entries(gpus: Mapping[str, Mapping[str, Any]], interconnects: Mapping[str, str]) -> dict[str, Any]:
    """Entries for GPUs without a table, by interconnect: medians over the GPUs that have one."""
    return {
        link: _default_entry(
            list(gpus.values()),
            [entry for name, entry in gpus.items() if (interconnects[name] == "pcie") == (link == "pcie")],
        )
        for link in ("nvlink", "pcie")
    }


def _default_entry(entries: Sequence[Mapping[str, Any]], linked: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    reduces: dict[int, list[Mapping[str, float]]] = {}
    for entry in linked:
        for item in entry["all_reduce"]:
            reduces.setdefault(int(item["gpus"]), []).append(item)
    return {
        "gemm": _median_table([entry["gemm"] for entry in entries]),
        "moe": _median_table([entry["moe"] for entry in entries]),
        "attention": {
            key: _rounded(np.median([entry["attention"][key] for entry in entries])) for key in entries[0]["attention"]
        },
        "all_reduce": [
            {"gpus": gpus}
            | {key: _rounded(np.median([item[key] for item in items])) for key in items[0] if key != "gpus"}
            for gpus, items in sorted(reduces.items())
        ],
    }


def write_coefficients(document: Mapping[str, Any], path: str | Path) -> None:
    """Writes a set that `sim.latency.load_coefficients` reads."""
    text = yaml.safe_dump(dict(document), sort_keys=False, width=120, default_flow_style=None)
    Path(path).write_text(HEADER + text, encoding="utf-8")
