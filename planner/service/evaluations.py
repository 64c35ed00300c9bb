"""The evaluations of a run, read on from where the last reading ended."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from planner.evaluation_log import EVALUATIONS, parse_evaluation

Evaluation = dict[str, Any]


class EvaluationsFile:
    """Follows `evaluations.jsonl` of a run directory, which grows line by line and is replaced when the run ends."""

    def __init__(self, run_dir: Path) -> None:
        self._path = run_dir / EVALUATIONS
        self._kept: dict[str, Evaluation] = {}
        self._inode = 0
        self._offset = 0

    def fresh(self) -> list[Evaluation]:
        """The whole evaluations that were not there at the last call."""
        try:
            file = self._path.open("rb")
        except FileNotFoundError:
            return []
        with file:
            status = os.fstat(file.fileno())
            if status.st_ino != self._inode or status.st_size < self._offset:
                self._inode, self._offset = status.st_ino, 0
                self._kept.clear()
            file.seek(self._offset)
            found = []
            for line in file:
                if not line.endswith(b"\n"):
                    break  # half written: read again when it is whole
                self._offset += len(line)
                evaluation = parse_evaluation(line.decode("utf-8", errors="replace"))
                if evaluation is not None:
                    found.append(evaluation)
                    self._kept[evaluation["id"]] = evaluation
        return found

    def all(self) -> list[Evaluation]:
        """Every evaluation that is there now, of equal ids the last, in order."""
        self.fresh()
        return list(self._kept.values())
