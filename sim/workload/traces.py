"""Readers of request traces: Mooncake, Azure, BLIS TraceV2, our own CSV, and JSON lines of lengths.

Every reader streams the file and gives the same columns. Times count from the trace's first request; requests are in
order of arrival. What is wrong with a line is an InputError that names file and line.
"""

from __future__ import annotations

import csv
import json
import re
from array import array
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from dataclasses import field as default
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NoReturn, TextIO

import numpy as np

from sim.errors import InputError
from sim.names import nearest
from sim.text_files import is_there, read_text
from sim.workload._spec import SLO_CLASS_PRIORITY
from sim.workload._types import IntColumn, Pieces
from sim.workload._validation import LONGEST_TOKENS
from sim.workload.content import BlockTrie

MOONCAKE_BLOCK_TOKENS = 512


@dataclass(slots=True)
class Trace:
    """A trace as columns, one entry a request; `arrival_ns` is None where the file has no times."""

    arrival_ns: IntColumn | None
    prompt_tokens: IntColumn
    output_tokens: IntColumn
    contents: list[Pieces]
    content: IntColumn
    slo_class: list[str] | None = None  # of each request; None: the file names no classes
    tenant: list[str] | None = None
    session: IntColumn | None = None  # number of each request's session, -1: none; None: the file names none
    answered_ns: IntColumn | None = None  # when each got its last token, on the clock of `arrival_ns`, where it says

    def __len__(self) -> int:
        return len(self.prompt_tokens)


@dataclass(slots=True)
class _Rows:
    """Grows a trace row by row."""

    file: Path
    field: str
    line: int = 0
    arrival_ns: array[int] = default(default_factory=lambda: array("q"))
    prompt: array[int] = default(default_factory=lambda: array("q"))
    output: array[int] = default(default_factory=lambda: array("q"))
    contents: dict[Pieces, int] = default(default_factory=lambda: {(): 0})  # each content's index
    content: array[int] = default(default_factory=lambda: array("q"))
    slo_class: list[str] = default(default_factory=list)
    tenant: list[str] = default(default_factory=list)
    prefix_ids: dict[str, int] = default(default_factory=dict)
    session: array[int] = default(default_factory=lambda: array("q"))
    session_ids: dict[str, int] = default(default_factory=dict)
    answered_ns: array[int] = default(default_factory=lambda: array("q"))

    def fail(self, problem: str) -> NoReturn:
        raise InputError(self.field, f"{self.file.name}: line {self.line}: {problem}")

    def number(self, row: Mapping[str, Any], key: str, at_least: int) -> int:
        """A whole number of at least `at_least`; as text (CSV) or as a number (JSON)."""
        raw = row.get(key)
        try:
            value = int(raw) if isinstance(raw, str) else raw
        except ValueError:
            value = None
        if type(value) is int and at_least <= value <= LONGEST_TOKENS:
            return value
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool):
            missing = raw is None or raw == ""
            self.fail(f"{key} is missing" if missing else f"{key} must be a whole number, got {_shown(raw)}")
        if not at_least <= value <= LONGEST_TOKENS:
            bound = f"at least {at_least}" if value < at_least else f"at most {LONGEST_TOKENS:,}"
            self.fail(f"{key} must be {bound}, got {_shown(value)}")
        return value

    def time_ns(self, row: Mapping[str, Any], key: str, ns_per_unit: int) -> int:
        """A time of 0 or more in whole nanoseconds."""
        raw = row.get(key)
        try:
            value = float(raw) * ns_per_unit if raw is not None and not isinstance(raw, bool) else -1.0
        except (TypeError, ValueError, OverflowError):
            value = -1.0
        if not 0 <= value < 2**62:
            bound = "at most 146 years" if value > 0 else "a time >= 0"
            self.fail(f"{key} is missing" if raw is None or raw == "" else f"{key} must be {bound}, got {_shown(raw)}")
        return round(value)

    def add(self, arrival_ns: int, prompt: int, output: int) -> None:
        self.arrival_ns.append(arrival_ns)
        self.prompt.append(prompt)
        self.output.append(output)

    def add_prefix(self, group: str, tokens: int) -> None:
        pieces: Pieces = ()
        if group and tokens:
            pieces = ((self.prefix_ids.setdefault(group, len(self.prefix_ids) + 1), tokens),)
        self.content.append(self.contents.setdefault(pieces, len(self.contents)))

    def add_session(self, name: str) -> None:
        self.session.append(self.session_ids.setdefault(name, len(self.session_ids)) if name else -1)

    def add_class(self, name: str) -> None:
        name = name or "standard"
        if name not in SLO_CLASS_PRIORITY:
            known = ", ".join(SLO_CLASS_PRIORITY)
            self.fail(f"slo_class must be one of {known}, got {name!r}{nearest(name, SLO_CLASS_PRIORITY)}")
        self.slo_class.append(name)

    def finish(self, contents: tuple[list[Pieces], IntColumn] | None = None, timed: bool = True) -> Trace:
        if not self.prompt:
            raise InputError(self.field, f"{self.file.name}: has no requests")
        n = len(self.prompt)
        times = np.array(self.arrival_ns, np.int64)
        order = np.argsort(times, kind="stable") if timed else np.arange(n)
        if contents is None:
            contents = list(self.contents), np.array(self.content or [0] * n, np.int64)
        answered = len(self.answered_ns) == n
        return Trace(
            arrival_ns=times[order] - times[order[0]] if timed else None,
            prompt_tokens=np.array(self.prompt, np.int64)[order],
            output_tokens=np.array(self.output, np.int64)[order],
            contents=contents[0],
            content=contents[1][order],
            slo_class=[self.slo_class[i] for i in order] if self.slo_class else None,
            tenant=[self.tenant[i] for i in order] if any(self.tenant) else None,
            session=np.array(self.session, np.int64)[order] if self.session_ids else None,
            answered_ns=np.array(self.answered_ns, np.int64)[order] - times[order[0]] if answered else None,
        )


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:100]}... ({len(text):,} characters)"


@contextmanager
def _opened(file: Path, field: str) -> Iterator[TextIO]:
    try:
        with file.open(encoding="utf-8-sig", newline="") as stream:
            yield stream
    except UnicodeDecodeError:
        raise InputError(field, f"{file.name}: is not a text file") from None
    except OSError as failure:
        raise InputError(field, f"cannot read {file}: {(failure.strerror or str(failure)).lower()}") from None


def _csv_rows(rows: _Rows, stream: TextIO, required: tuple[str, ...]) -> Iterator[dict[str, str]]:
    reader = csv.reader(stream)
    rows.line = 1
    try:
        header = [name.strip() for name in next(reader, [])]
        missing = [name for name in required if name not in header]
        if missing:
            rows.fail(f"the header lacks {', '.join(missing)}")
        twice = [name for name in required if header.count(name) > 1]
        if twice:
            rows.fail(f"the header has {twice[0]} twice")
        for row in reader:
            rows.line = reader.line_num
            if not row:
                continue
            if len(row) != len(header):
                rows.fail(f"has {len(row)} fields, the header has {len(header)}")
            yield dict(zip(header, row, strict=True))
    except csv.Error as failure:
        rows.line = reader.line_num
        rows.fail(str(failure))


def _json_rows(rows: _Rows, stream: TextIO) -> Iterator[Any]:
    for line, text in enumerate(stream, 1):
        rows.line = line
        if not text.strip():
            continue
        try:
            yield json.loads(text)
        except json.JSONDecodeError as failure:
            rows.fail(f"is not JSON ({failure.msg} at column {failure.colno})")
        except (ValueError, RecursionError):  # a number of thousands of digits; nesting thousands deep
            rows.fail("is no line of a trace")


def read_mooncake(file: Path, field: str) -> Trace:
    """Mooncake JSON lines: `timestamp` (ms), `input_length`, `output_length`, `hash_ids` of 512-token blocks.

    Source of the format: the traces released with Mooncake (FAST'25). The last id may stand for fewer than 512 tokens.
    """
    rows, trie = _Rows(file, field), BlockTrie(MOONCAKE_BLOCK_TOKENS)
    with _opened(file, field) as stream:
        for row in _json_rows(rows, stream):
            if not isinstance(row, dict):
                rows.fail("must be a JSON object")
            ids = row.get("hash_ids")
            if not isinstance(ids, list) or not all(type(i) is int for i in ids):
                rows.fail("hash_ids must be a list of whole numbers")
            prompt = rows.number(row, "input_length", 1)
            rows.add(rows.time_ns(row, "timestamp", 1_000_000), prompt, rows.number(row, "output_length", 1))
            trie.add(ids, prompt)
    return rows.finish(trie.contents())


_AZURE_TIME = re.compile(r"(\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)?")
_EPOCH = datetime(1970, 1, 1)
_YEARS = range(1900, 2201)  # nanoseconds of an int64 reach from 1678 to 2262


def read_azure(file: Path, field: str) -> Trace:
    """Azure LLM inference traces: CSV `TIMESTAMP,ContextTokens,GeneratedTokens`; content is private."""
    rows = _Rows(file, field)
    second = timedelta(seconds=1)
    with _opened(file, field) as stream:
        for row in _csv_rows(rows, stream, ("TIMESTAMP", "ContextTokens", "GeneratedTokens")):
            match = _AZURE_TIME.fullmatch(row["TIMESTAMP"].strip())
            if not match:
                rows.fail(f"TIMESTAMP must be like 2023-11-16 18:15:46.6805900, got {row['TIMESTAMP']!r}")
            try:
                moment = datetime.fromisoformat(match[1] + (match[3] or ""))
                if moment.tzinfo is not None:
                    moment = (moment - (moment.utcoffset() or timedelta())).replace(tzinfo=None)
            except (ValueError, OverflowError) as failure:
                rows.fail(f"TIMESTAMP {row['TIMESTAMP']!r}: {failure}")
            if moment.year not in _YEARS:
                rows.fail(f"TIMESTAMP must be of the years {_YEARS[0]} to {_YEARS[-1]}, got {row['TIMESTAMP']!r}")
            time_ns = (moment - _EPOCH) // second * 1_000_000_000 + int((match[2] or "0").ljust(9, "0"))
            rows.add(time_ns, rows.number(row, "ContextTokens", 1), rows.number(row, "GeneratedTokens", 1))
    return rows.finish()


def read_csv(file: Path, field: str) -> Trace:
    """Our own CSV: `arrival_s,input_tokens,output_tokens[,prefix_group,prefix_tokens,slo_class,session_id]`.

    `input_tokens` is the whole prompt, its shared prefix of `prefix_tokens` included. Other columns are ignored.
    """
    rows = _Rows(file, field)
    with _opened(file, field) as stream:
        for row in _csv_rows(rows, stream, ("arrival_s", "input_tokens", "output_tokens")):
            prompt = rows.number(row, "input_tokens", 1)
            rows.add(rows.time_ns(row, "arrival_s", 1_000_000_000), prompt, rows.number(row, "output_tokens", 1))
            group = row.get("prefix_group", "")
            tokens = rows.number(row, "prefix_tokens", 0) if group else 0
            if tokens > prompt:
                rows.fail(f"prefix_tokens must be at most input_tokens ({prompt}), got {tokens}")
            rows.add_prefix(group, tokens)
            if "slo_class" in row:
                rows.add_class(row["slo_class"])
            rows.add_session(row.get("session_id", ""))
    return rows.finish()


def read_tracev2(file: Path, field: str) -> Trace:
    """BLIS TraceV2: the CSV beside its YAML header (either file may be named).

    As BLIS replays it: the request goes out at `send_time_us` where that was recorded, else `arrival_time_us`; the
    prompt is `server_input_tokens` where the server reported it, else `input_tokens` behind `prefix_length` shared
    tokens of the `prefix_group`. Requests whose `status` is not ok are left out. `last_chunk_time_us`, where it was
    recorded, says when a request was answered.
    """
    data = file.with_suffix(".csv") if file.suffix in (".yaml", ".yml") else file
    _check_tracev2_header(data, field)
    rows = _Rows(data, field)
    with _opened(data, field) as stream:
        for row in _csv_rows(rows, stream, ("arrival_time_us", "input_tokens", "output_tokens")):
            if row.get("status") not in ("ok", "", None):
                continue
            sent = rows.time_ns(row, "send_time_us", 1_000) if row.get("send_time_us") else 0
            time_ns = sent or rows.time_ns(row, "arrival_time_us", 1_000)
            group = row.get("prefix_group", "")
            prefix = rows.number(row, "prefix_length", 0) if group else 0
            prompt = rows.number(row, "server_input_tokens", 0) if row.get("server_input_tokens") else 0
            prompt = prompt or rows.number(row, "input_tokens", 0) + prefix
            if prompt < 1:
                rows.fail("the prompt has no tokens: input_tokens must be at least 1")
            rows.add(time_ns, prompt, rows.number(row, "output_tokens", 1))
            rows.add_prefix(group, min(prefix, prompt))
            rows.add_class(row.get("slo_class", ""))
            rows.tenant.append(row.get("tenant_id", ""))
            rows.add_session(row.get("session_id", ""))
            answered_ns = rows.time_ns(row, "last_chunk_time_us", 1_000) if row.get("last_chunk_time_us") else 0
            if answered_ns:
                rows.answered_ns.append(answered_ns)
    return rows.finish()


def _check_tracev2_header(data: Path, field: str) -> None:
    import yaml

    header = next((h for h in (data.with_suffix(".yaml"), data.with_suffix(".yml")) if is_there(h)), None)
    if header is None:
        return
    try:
        content = yaml.safe_load(read_text(header))
    except InputError as failure:
        raise InputError(field, f"{header.name}: {failure.problem}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as failure:  # ValueError: what looks like a date and is none
        raise InputError(field, f"{header.name}: is not YAML: {str(failure).splitlines()[0]}") from None
    unit = content.get("time_unit", "us") if isinstance(content, dict) else None
    if unit not in ("us", "microseconds"):
        raise InputError(field, f"{header.name}: time_unit must be us, got {unit!r}")


_JSONL_KEYS = (("input_len", "output_len"), ("input_length", "output_length"), ("input_tokens", "output_tokens"))


def read_jsonl(file: Path, field: str) -> Trace:
    """JSON lines of lengths, as ShareGPT samplers write them: objects with `input_len` and `output_len` (or
    `_length`, `_tokens`), or pairs. `timestamp` (ms) may be on every line or on none, `session_id` on any; content is
    private.
    """
    rows = _Rows(file, field)
    timed: bool | None = None
    with _opened(file, field) as stream:
        for row in _json_rows(rows, stream):
            if isinstance(row, list) and len(row) == 2:
                row = dict(zip(_JSONL_KEYS[0], row, strict=True))
            keys = next((k for k in _JSONL_KEYS if isinstance(row, dict) and k[0] in row), None)
            if keys is None:
                rows.fail("must be an object with input_len and output_len, or a pair of them")
            if timed is None:
                timed = "timestamp" in row
            if timed != ("timestamp" in row):
                rows.fail("timestamp must be on every line or on none")
            time_ns = rows.time_ns(row, "timestamp", 1_000_000) if timed else 0
            rows.add(time_ns, rows.number(row, keys[0], 1), rows.number(row, keys[1], 1))
            rows.add_session(str(row.get("session_id", "")))
    return rows.finish(timed=bool(timed))


READERS: dict[str, Callable[[Path, str], Trace]] = {
    "mooncake": read_mooncake,
    "azure": read_azure,
    "csv": read_csv,
    "tracev2": read_tracev2,
    "jsonl": read_jsonl,
}


def guess_format(file: Path, field: str) -> str:
    """The format that the file's first line shows. Raises InputError where it is none of those known."""
    if file.suffix in (".yaml", ".yml"):
        return "tracev2"
    with _opened(file, field) as stream:
        first = stream.readline().strip()
    if not first:
        raise InputError(field, f"{file.name}: has no requests")
    if first[0] in "{[":
        return "mooncake" if '"hash_ids"' in first else "jsonl"
    names = {name.strip() for name in first.split(",")}
    for name, column in (("azure", "ContextTokens"), ("tracev2", "arrival_time_us"), ("csv", "arrival_s")):
        if column in names:
            return name
    raise InputError(field, f"{file.name}: line 1: is the start of no known format; give format: {', '.join(READERS)}")


def read_trace(file: Path, format: str | None, field: str) -> Trace:
    """The trace in `file`; its format is guessed where it is None. Raises InputError for whatever is wrong in it."""
    if not is_there(file):
        raise InputError(field, f"no file {_shown(str(file))}")
    if not file.is_file() and not file.is_dir():  # read twice, which a pipe cannot be, and to its end
        raise InputError(field, f"{file} must be a regular file")
    return READERS[format or guess_format(file, field)](file, field)
