"""How a worker runs: frozen values that the command line makes and every process of the worker reads."""

from __future__ import annotations

import platform
import secrets
import socket
from dataclasses import dataclass, field
from typing import Final, Literal

from envq.settings import Settings
from envq.workers.lease import Lease

EXIT_OK: Final = 0
EXIT_BUILD_FAILED: Final = 5
EXIT_RECYCLE: Final = 75  # an executor asks to be replaced by a fresh one
EXIT_UNFIT: Final = 76  # an executor that was to follow another could not build what that one holds

StartMethod = Literal["fork", "spawn", "forkserver"]
# macOS frameworks do not survive a fork; elsewhere a fork shares the imported libraries' memory.
DEFAULT_START_METHOD: Final[StartMethod] = "spawn" if platform.system() == "Darwin" else "fork"


@dataclass(frozen=True)
class WorkerConfig:
    """One ``envq worker`` command."""

    settings: Settings
    queues: tuple[str, ...] = ("default",)  # as the user names them, most urgent first
    executors: int = 1
    label: str = field(default_factory=socket.gethostname)
    burst: bool = False
    scheduler: bool = True
    max_jobs: int | None = None  # of the whole worker
    max_jobs_per_child: int | None = None
    max_memory_per_child_mib: int | None = None  # growth since the variables were built
    max_idle_s: float | None = None
    grace_s: float | None = None  # a warm stop turns cold after so long; None: never
    kill_grace_s: float = 5.0  # between asking a job to end and killing its process
    lease: Lease = field(default_factory=Lease)
    build_failure: Literal["keep", "exit"] = "keep"
    check_resets: bool = False
    through_rq: bool = False  # no batches: each job by itself, stored by RQ's own code
    isolate: bool = False  # each job in a forked copy of its executor
    label_output: bool = False  # user prints as whole lines that name executor and job
    middleware: tuple[str, ...] = ()  # "module:name" each, outermost first
    import_paths: tuple[str, ...] = ()
    log_level: str = "INFO"
    log_format: str = "text"  # text, json, or a logging format string
    configure_logging: bool = True
    start_method: StartMethod = DEFAULT_START_METHOD

    def executor(
        self, number: int, supervisor_pid: int, max_jobs: int | None, heritage: tuple[str, ...] | None = None
    ) -> ExecutorConfig:
        """The configuration of the next process in a place; its name is never used twice."""
        name = f"{self.label}.{supervisor_pid}.{number}.{secrets.token_hex(3)}"
        return ExecutorConfig(self, name, number, supervisor_pid, max_jobs, heritage)


@dataclass(frozen=True)
class ExecutorConfig:
    """One executor process of a worker."""

    worker: WorkerConfig
    name: str
    number: int
    supervisor_pid: int
    max_jobs: int | None  # of the worker's; after so many it exits
    # Variables without which it must not take the place of the one that works there; None: nobody does.
    heritage: tuple[str, ...] | None = None
