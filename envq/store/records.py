"""What envq stores besides RQ's record, as frozen values with one reading and one writing rule each."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from typing import Any, Final, Self, cast


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in cast("list[Any]", value))


# By the annotation of a field.
_FITS: Final[dict[str, Callable[[Any], bool]]] = {
    "str": lambda value: isinstance(value, str),
    "bool": lambda value: isinstance(value, bool),
    "int": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "float": lambda value: isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value),
    "list[str]": _is_texts,
    "list[str] | None": lambda value: value is None or _is_texts(value),
}


class _Json:
    """JSON with one key a field; unknown keys of a newer version are ignored, missing ones take defaults."""

    def to_json(self) -> str:
        return json.dumps(asdict(cast(Any, self)), separators=(",", ":"), sort_keys=True)

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Raises ValueError, and nothing else, for text that is no such record."""
        try:
            data: Any = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"not JSON: {text[:80]!r}") from error
        if not isinstance(data, dict):
            raise ValueError(f"not an object: {text[:80]!r}")
        data = cast(dict[str, Any], data)
        known = {entry.name: cast(str, entry.type) for entry in fields(cast(Any, cls))}
        given = {name: value for name, value in data.items() if name in known}
        for name, value in given.items():
            if not _FITS[known[name]](value):
                raise ValueError(f"{name}={value!r:.80} is no {known[name]}")
        try:
            return cls(**given)
        except TypeError as error:
            raise ValueError(str(error)) from error


@dataclass(frozen=True)
class Declaration(_Json):
    """One declared variable: the readable header that executors and tools see; the code is a blob by digest."""

    name: str
    version: int
    digest: str
    explicit: bool = False  # the version was given by the user
    epoch: int = 0  # begins anywhere, raised by a request to rebuild
    life: str = ""  # another one after each removal
    by_value: bool = False
    python: str = ""
    cloudpickle: str = ""
    size: int = 0
    queues: list[str] | None = None
    build: str = "eager"
    driver: str = "auto"
    required: bool = False
    replace: str = "keep"
    init_timeout: float = 600.0
    reset_timeout: float = 60.0
    declared_at: str = ""
    declared_by: str = ""
    history: list[str] = field(default_factory=list[str])  # digests of versions before, newest last
    signature: str = ""  # as it stands in Redis; "" where nobody has a key

    def __post_init__(self) -> None:
        if not self.name.isidentifier():
            raise ValueError(f"name={self.name!r:.80} is no identifier")
        for option, words in (("build", ("eager", "lazy")), ("replace", ("keep", "free"))):
            if getattr(self, option) not in words:
                raise ValueError(f"{option}={getattr(self, option)!r:.80} is none of {', '.join(words)}")
        if self.init_timeout <= 0 or self.reset_timeout <= 0:
            raise ValueError("a timeout must be above 0")

    @property
    def identity(self) -> tuple[int, str, int]:
        """What makes an executor build again."""
        return self.version, self.digest, self.epoch


@dataclass(frozen=True)
class VariableState(_Json):
    """What one executor says of one variable."""

    name: str
    version: int
    digest: str
    state: str
    epoch: int = 0
    error: str = ""
    build_seconds: float = 0.0
    builds: int = 0
    resets: int = 0
    uses: int = 0
    dirty: int = 0  # jobs after which it was not as it was built (--check-resets)
    rss_mib: float = 0.0  # of the executor right after the build


@dataclass(frozen=True)
class MemoryState(_Json):
    """The resident memory of one executor."""

    baseline_mib: float = 0.0  # with its variables built
    grown_mib: float = 0.0  # since then


@dataclass(frozen=True)
class ExecutorInfo(_Json):
    """Who an executor is; written once at its birth."""

    name: str
    worker: str  # label of its supervisor
    host: str
    pid: int
    supervisor_pid: int
    python: str
    version: str
    queues: list[str]
    started_at: str


class EventKind(StrEnum):
    """Every kind of event on the channel; the table in the README says when and with which fields."""

    JOB_STARTED = "job.started"
    JOB_FINISHED = "job.finished"
    JOB_FAILED = "job.failed"
    JOB_RETRIED = "job.retried"
    JOB_STOPPED = "job.stopped"
    JOB_REQUEUED = "job.requeued"
    JOB_LOST = "job.lost"
    VARIABLE_DECLARED = "variable.declared"
    VARIABLE_REMOVED = "variable.removed"
    VARIABLE_BUILDING = "variable.building"
    VARIABLE_READY = "variable.ready"
    VARIABLE_FAILED = "variable.failed"
    VARIABLE_REBUILT = "variable.rebuilt"
    VARIABLE_DIRTY = "variable.dirty"
    EXECUTOR_STARTED = "executor.started"
    EXECUTOR_STOPPED = "executor.stopped"
    EXECUTOR_DIED = "executor.died"


@dataclass(frozen=True)
class Event(_Json):
    """Something that happened; fields that do not apply are empty."""

    kind: str
    at: str  # ISO 8601, UTC
    worker: str = ""
    job_id: str = ""
    execution_id: str = ""
    queue: str = ""
    func: str = ""
    duration_ms: float = 0.0
    env: str = ""
    env_version: int = 0
    detail: str = ""
