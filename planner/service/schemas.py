"""The bodies of the API, as its OpenAPI document describes them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from planner.service.errors import FieldProblem

State = Literal["queued", "running", "done", "failed", "cancelled", "interrupted"]


def _text(value: str) -> str:
    """Text that can be written to a file and a database."""
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError("must be text that UTF-8 can write") from None
    if "\0" in value:
        raise ValueError("must have no null characters")
    return value


Text = Annotated[str, AfterValidator(_text)]


class SpaceInput(BaseModel):
    """A search space: the text of its YAML, or the mapping that this would be."""

    model_config = ConfigDict(extra="forbid")

    yaml: Text | None = None
    space: dict[str, Any] | None = None

    @model_validator(mode="after")
    def _one_of_them(self) -> SpaceInput:
        if (self.yaml is None) == (self.space is None):
            raise ValueError("give either yaml or space")
        return self

    @property
    def given(self) -> str | dict[str, Any]:
        """Whichever it is."""
        return self.yaml if self.yaml is not None else self.space or {}


class Submission(SpaceInput):
    """A search to run."""

    name: Annotated[Text, Field(min_length=1, max_length=100)] | None = None


class Nothing(BaseModel):
    """A body that says nothing: `{}`."""

    model_config = ConfigDict(extra="forbid")


class Login(BaseModel):
    """The token that the service was started with."""

    model_config = ConfigDict(extra="forbid")

    token: Annotated[str, Field(max_length=1000)]


class Session(BaseModel):
    """Whether a token is needed, and whether this client has shown it."""

    required: bool
    authenticated: bool


class Health(BaseModel):
    """The service answers."""

    status: Literal["ok"] = "ok"


class ServiceLimits(BaseModel):
    """How much is too much."""

    max_body_bytes: int
    max_running: int
    max_queued: int
    max_candidates: int
    max_requests: int
    max_simulated_requests: int
    max_job_s: float
    max_streams: int


class Version(BaseModel):
    """What runs here, and what it allows."""

    version: str
    engine: str
    api: Literal["v1"] = "v1"
    policies_allowed: bool
    files_allowed: bool
    files: list[str]
    limits: ServiceLimits


class Objective(BaseModel):
    """What makes a plan better."""

    metric: str
    sense: Literal["min", "max"]


class Constraint(BaseModel):
    """What a plan must hold."""

    metric: str
    operator: str
    limit: float


class Progress(BaseModel):
    """How far a search is."""

    done: int
    stopped_early: int = 0
    refused: int = 0
    ruled_out: int
    expected: int | None
    feasible: int
    front: int
    elapsed_s: float
    workers: int
    rate_per_s: float
    left_s: float | None


class Job(BaseModel):
    """A search that was asked for. Times are seconds since 1970."""

    id: str
    name: str
    model: str
    state: State
    created_at: float
    started_at: float | None
    ended_at: float | None
    position: int | None = Field(description="how many queued jobs come before it; null unless it is queued")
    attempts: int
    problem: str | None
    problems: list[FieldProblem]
    progress: Progress | None
    objectives: list[Objective]
    constraints: list[Constraint]
    combinations: int | None
    recommended: str | None
    recommended_label: str | None = Field(description="TP x replicas and the GPU of the recommended plan")
    can: list[Literal["cancel", "resume", "delete"]]


class JobDetail(Job):
    """A job with the text that was submitted."""

    yaml: str


class JobList(BaseModel):
    """A page of jobs, newest first."""

    jobs: list[Job]
    total: int
    limit: int
    offset: int


class Variable(BaseModel):
    """A deployment parameter and what it may be."""

    name: str
    options: list[Any]
    count: int


class SpaceFacts(BaseModel):
    """What a valid space says."""

    name: str
    model: str
    combinations: int
    requests: int | None
    method: str
    budget: int | None
    variables: list[Variable]
    objectives: list[Objective]
    constraints: list[Constraint]
    document: dict[str, Any]


class Validation(BaseModel):
    """Whether a space is valid, and what is wrong with it if not."""

    valid: bool
    problems: list[FieldProblem]
    space: SpaceFacts | None


class Example(BaseModel):
    """A search space to start from."""

    name: str
    title: str
    yaml: str


class Examples(BaseModel):
    """The search spaces that come along."""

    examples: list[Example]


class Artefact(BaseModel):
    """A file of a run."""

    name: str
    bytes: int
    media_type: str
    url: str


class Artefacts(BaseModel):
    """The files of a run."""

    artefacts: list[Artefact]
