"""What the documentation says can be done, can be done; what it lists is all there is."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from planner.cli import main
from planner.export import TARGETS
from planner.measurements.results import READERS
from planner.parameters import DEFAULTS, PARAMETERS
from sim.metrics import METRICS
from sim.workload.presets import PRESETS

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"

# The files that a section of how-to.md shows, by what their first words say.
FILES = {
    "# my_space.yaml": "my_space.yaml",
    "# trace_space.yaml": "trace_space.yaml",
    "# chat_space.yaml": "chat_space.yaml",
    "# router_space.yaml": "router_space.yaml",
    "# my_router.py": "my_router.py",
    "# gateway_space.yaml": "gateway_space.yaml",
    "# my_gateway.py": "my_gateway.py",
    "# decider_space.yaml": "decider_space.yaml",
    "# my_decider.py": "my_decider.py",
    "arrival_s,": "my_trace.csv",
    "{\n": "my_model/config.json",
    '{"request_throughput"': "result.json",
}


def blocks(text: str) -> list[tuple[str, str]]:
    """The fenced blocks of a document: (language, content)."""
    return re.findall(r"^```(\w+)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def sections(document: str) -> list[tuple[str, str]]:
    parts = re.split(r"^## (.*)\n", (DOCS / document).read_text(), flags=re.MULTILINE)
    return list(zip(parts[1::2], parts[2::2], strict=True))


HOW_TO = [(title, text) for title, text in sections("how-to.md") if "```console" in text]


@pytest.mark.parametrize(("title", "text"), HOW_TO, ids=[title for title, _ in HOW_TO])
def test_every_command_of_the_how_to_works(
    title: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "search_spaces").symlink_to(ROOT / "search_spaces")
    monkeypatch.chdir(tmp_path)
    commands = []
    for language, content in blocks(text):
        if language == "console":
            commands += content.splitlines()
            continue
        (name,) = (name for start, name in FILES.items() if content.startswith(start))
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    for command in commands:
        program, *arguments = shlex.split(command, comments=True)
        assert program == "planner"
        assert main(arguments) == 0, command


def test_every_command_of_the_tutorial_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "search_spaces").symlink_to(ROOT / "search_spaces")
    monkeypatch.chdir(tmp_path)
    for language, content in blocks((DOCS / "tutorial.md").read_text()):
        assert language == "console"
        for command in content.splitlines():
            program, *arguments = shlex.split(command)
            assert program == "planner"
            if arguments[0] == "search":
                arguments += ["--set", "workload.num_requests=400"]  # the same in a tenth of the time
            expanded = [found for word in arguments for found in (sorted(map(str, Path().glob(word))) or [word])[:1]]
            assert main(expanded) == 0, command


def test_the_python_of_the_readme_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = (content for language, content in blocks((ROOT / "README.md").read_text()) if language == "python")
    exec(compile(code, "README.md", "exec"), {})
    assert float(capsys.readouterr().out) > 0


def test_the_first_commands_of_the_readme_are_make_demo_and_make_test() -> None:
    language, content = blocks((ROOT / "README.md").read_text())[0]
    assert language == "console"
    assert [line.split("#")[0].strip() for line in content.splitlines()] == ["make demo", "make test"]


def test_every_link_leads_somewhere() -> None:
    for document in (ROOT / "README.md", *DOCS.glob("*.md")):
        for target in re.findall(r"\]\(([^)#]+)[^)]*\)", document.read_text()):
            if "://" not in target:
                assert (document.parent / target).exists(), f"{document.name}: {target}"


def test_the_reference_lists_every_deployment_parameter_with_its_default() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| ([^|]*) \|", (DOCS / "reference.md").read_text(), re.MULTILINE))
    for name in PARAMETERS:
        assert name in rows
        default = DEFAULTS.get(name)
        if default is not None:
            written = str(default).lower() if isinstance(default, bool) else str(default)
            assert float(rows[name]) == default if isinstance(default, float) else rows[name].strip() == written


def test_the_reference_lists_every_metric() -> None:
    text = (DOCS / "reference.md").read_text()
    assert "`{ttft,tpot,itl,e2e,queue}_{mean,p50,p90,p95,p99,max}_ms`" in text
    latency = re.compile(r"(ttft|tpot|itl|e2e|queue)_(mean|p50|p90|p95|p99|max)_ms")
    assert [
        name for name in METRICS if "." not in name and not latency.fullmatch(name) and f"`{name}`" not in text
    ] == []


def test_the_reference_lists_every_export_target() -> None:
    text = (DOCS / "reference.md").read_text()
    assert all(f"| `{target}` |" in text for target in TARGETS)


def test_presets_that_the_reference_names_exist() -> None:
    (row,) = re.findall(r"^\| `preset` \| (.*) \|$", (DOCS / "reference.md").read_text(), re.MULTILINE)
    assert set(re.findall(r"`(\w+)`", row)) - {"preset"} <= set(PRESETS)


def test_the_reference_lists_every_tool_whose_results_are_read() -> None:
    text = (DOCS / "reference.md").read_text()
    assert all(f"| `{tool}` |" in text for tool in READERS)
