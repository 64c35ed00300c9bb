"""Pages of the site that are not written by hand: the start page is the README, the reference tables are the code's."""

from __future__ import annotations

import contextlib
import inspect
import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages, and the spaces that the documents link to."""
    for path, make in PAGES.items():
        files.append(File.generated(config, path, content=make()))
    for space in sorted((ROOT / "search_spaces").glob("*.yaml")):
        files.append(File.generated(config, f"search_spaces/{space.name}", abs_src_path=str(space)))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Links out of docs/ lead to the copies that are in the site."""
    return markdown.replace("](../search_spaces/", "](search_spaces/")


def start() -> str:
    """The README, its links as seen from docs/."""
    text = (ROOT / "README.md").read_text(encoding="utf-8").replace("](docs/", "](")
    return text.replace("[search_spaces/](search_spaces)", "`search_spaces/`")


def commands() -> str:
    """Every command with its options, as `--help` shows them."""
    from planner.cli import COMMANDS

    parts = ["# Commands", "", "What `planner COMMAND --help` says."]
    for name in COMMANDS:
        parts += ["", f"## planner {name}", "", "```text", _help(name), "```"]
    return "\n".join(parts) + "\n"


def _help(*command: str) -> str:
    from planner.cli import main

    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
        main([*command, "--help"])
    return out.getvalue().rstrip()


def policies() -> str:
    """Every shipped policy of each kind: what its class says of it, and its parameters."""
    from sim.cluster import registry

    parts = ["# Policies and their parameters", "", "Named in a space as `name`, or as `{name: ..., parameter: ...}`."]
    for kind, shipped in registry._SHIPPED.items():
        parts += ["", f"## {kind}", "", "| policy | | parameters (default) |", "|---|---|---|"]
        for name, policy in shipped.items():
            defaults = registry.policy_defaults(kind, name)
            shown = ", ".join(f"`{key}` ({_written(value)})" for key, value in defaults.items())
            parts.append(f"| `{name}` | {_summary(policy)} | {shown} |")
    return "\n".join(parts) + "\n"


def workload() -> str:
    """The fields of every kind of workload and of its parts, from the schemas that check them."""
    from sim.workload import _spec

    parts = ["# Workload fields", "", "The fields of a `workload` section by its `kind`; those marked * are required."]
    schemas = {f"kind: {kind}": schema for kind, schema in _spec._KINDS.items()}
    schemas |= {"arrival": _spec.Arrival}
    for title, schema in schemas.items():
        fields = schema.model_json_schema()
        parts += [
            "",
            f"## {title}",
            "",
            _summary(schema, whole=True),
            "",
            "| field | value | default |",
            "|---|---|---|",
        ]
        for name, field in fields["properties"].items():
            star = "*" if name in fields.get("required", ()) else ""
            default = field.get("default")
            parts.append(f"| `{name}`{star} | {_values(field)} | {'' if default is None else _written(default)} |")
    return "\n".join(parts) + "\n"


WORDS = {"integer": "whole number", "number": "number", "string": "text", "boolean": "true or false", "array": "list"}
BOUNDS = (("minimum", "at least"), ("exclusiveMinimum", "above"), ("maximum", "at most"), ("exclusiveMaximum", "below"))


def _values(field: dict[str, Any]) -> str:
    """What a field of a JSON schema may hold, in words."""
    if "const" in field:
        return f"`{field['const']}`"
    if "enum" in field:
        return ", ".join(f"`{value}`" for value in field["enum"])
    if "anyOf" in field or "oneOf" in field:
        found = [_values(option) for option in field.get("anyOf", field.get("oneOf")) if option.get("type") != "null"]
        distinct = list(dict.fromkeys(found))
        return "a number or a distribution" if len(distinct) > 4 else " or ".join(distinct)
    if "$ref" in field:
        name = field["$ref"].rpartition("/")[2]
        return "[arrival](#arrival)" if name == "Arrival" else f"a mapping ({name})"
    words = WORDS.get(field.get("type", ""), "see the reference")
    bounds = [f"{text} {field[key]:,g}" for key, text in BOUNDS if key in field]
    of = f" of {_values(field['items'])}" if isinstance(field.get("items"), dict) and field["items"] else ""
    return words + of + (f", {', '.join(bounds)}" if bounds else "")


def catalog() -> str:
    """The models and GPUs that are known by name."""
    from sim.catalog import gpu_names, load_gpu, load_model, model_names

    parts = ["# Models and GPUs", "", "## GPUs", ""]
    parts += ["| GPU | memory, GiB | bandwidth, GB/s | 16-bit TFLOP/s | $/h |", "|---|---|---|---|---|"]
    for gpu in map(load_gpu, gpu_names()):
        row = (gpu.memory_bytes / 2**30, gpu.memory_bandwidth_bytes_per_s / 1e9, gpu.bf16_flops_per_s / 1e12)
        parts.append(f"| `{gpu.name}` | {row[0]:.0f} | {row[1]:,.0f} | {row[2]:,.0f} | {gpu.price_usd_per_hour:.2f} |")
    parts += ["", "## Models", ""]
    parts += ["| model | parameters, billions | layers | KV bytes a token and layer |", "|---|---|---|---|"]
    for model in map(load_model, model_names()):
        kv = model.kv_bytes_per_token_per_layer_per_gpu(1, "auto")
        parts.append(f"| `{model.name}` | {model.num_parameters / 1e9:.1f} | {model.num_layers} | {kv:,} |")
    return "\n".join(parts) + "\n"


def _summary(described: Any, *, whole: bool = False) -> str:
    text = inspect.getdoc(described) or ""
    first = text if whole else text.split("\n\n")[0]
    return re.sub(r"\s+", " ", first).replace("|", "\\|")


def _written(value: Any) -> str:
    if value is None or value is inspect.Parameter.empty:
        return "none"
    return str(value).lower() if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else str(value)


PAGES: dict[str, Callable[[], str]] = {
    "index.md": start,
    "generated/commands.md": commands,
    "generated/policies.md": policies,
    "generated/workload.md": workload,
    "generated/catalog.md": catalog,
}
