"""The one kind of error that a user's input can cause."""

from __future__ import annotations


class InputError(ValueError):
    """Something in the user's input is wrong.

    `field` is the dotted path of the field (``workload.arrival.rate_rps``), `problem` what is wrong and what
    would be right. The command line prints ``FILE: field: problem`` on one line and exits with 2.
    """

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(field, problem)
        self.field = field
        self.problem = problem

    def __str__(self) -> str:
        return f"{self.field}: {self.problem}" if self.field else self.problem


class DoesNotFit(InputError):
    """A deployment that a real engine would refuse to start, with the arithmetic that shows why."""
