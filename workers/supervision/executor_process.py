"""A supervisor's view of one executor: its process, its slot, its control pipe."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, Final, Literal, cast

from envq.workers.config import ExecutorConfig
from envq.workers.ledger import Ledger
from envq.workers.slot import Interrupt, Phase, Slot, SlotView
from envq.workers.supervision.processes import ChildProcess, Nursery
from envq.workers.supervision.verdict import Death, Intent

Message = Literal[b"wake", b"stop", b"register", b"renew"]
Target = Callable[[ExecutorConfig, Slot, Ledger, Connection], None]

BORN: Final = b"born"
BATCH: Final = b"batch"
RECYCLE: Final = b"recycle"  # before the names of the variables it holds


class ExecutorProcess:
    """One executor process."""

    def __init__(self, config: ExecutorConfig, nursery: Nursery, target: Target) -> None:
        self.config = config
        self.name = config.name
        self.born = False  # it said that it is registered, and has built what it could
        self.stop_asked = False
        self.renew_asked = False
        self.holds: tuple[str, ...] | None = None  # its variables, once it wants to be followed by a fresh one
        self.batch_at = -math.inf  # when it last said that it holds more than one job, by the monotonic clock
        self._slot = Slot(nursery.context)
        self.ledger = Ledger(nursery.context)
        self._intent: Intent | None = None
        self._unsent: list[Message] = []
        ours, theirs = cast(Any, nursery.context).Pipe()
        self.control: Connection = ours
        try:
            shared = (self._slot, self.ledger)
            self.process: ChildProcess = nursery.start(self.name, target, config, *shared, theirs, ours=[ours])
        except OSError:
            ours.close()
            raise
        finally:
            theirs.close()
        # An executor deep in a job does not read: a full pipe must not hold up its supervisor.
        os.set_blocking(self.control.fileno(), False)

    @property
    def pid(self) -> int:
        """Its process id, also after its end."""
        return self.process.pid

    @property
    def view(self) -> SlotView:
        """What it does right now."""
        return self._slot.read()

    @property
    def lived_s(self) -> float:
        """How long ago it was started."""
        return time.monotonic() - self.process.started_at

    @property
    def condemned(self) -> bool:
        """It was killed, and only has not ended yet."""
        return self._intent is not None

    def tell(self, message: Message) -> None:
        """Send a message; kept for ``flush`` while the pipe is full, equal ones once."""
        if message not in self._unsent:
            self._unsent.append(message)
        self.flush()

    def flush(self) -> None:
        """Send what could not be sent before."""
        try:
            while self._unsent:
                self.control.send_bytes(self._unsent[0])
                del self._unsent[0]
        except BlockingIOError:
            return
        except OSError:
            self._unsent.clear()  # its end is closed: it is ending

    def hear(self) -> bool:
        """Read what it says; False when its end is closed."""
        try:
            while self.control.poll():
                message = self.control.recv_bytes()
                self.born = self.born or message == BORN
                if message == BATCH:
                    self.batch_at = time.monotonic()
                elif message.startswith(RECYCLE):
                    self.holds = tuple(message.decode().split()[1:])
        except (EOFError, OSError):
            return False
        return True

    def stop(self) -> None:
        """Ask it to finish its job and exit."""
        self.stop_asked = True
        self.tell(b"stop")
        # Neither a start nor a build reads the pipe; the executor's handler knows whether it may break off.
        if self.view.phase in (Phase.STARTING, Phase.BUILDING):
            self.process.send(signal.SIGTERM)

    def renew(self) -> None:
        """Make it ask for a fresh one; where it only builds, it is stopped: nothing would be gained by waiting."""
        self.renew_asked = True
        view = self.view
        if view.phase in (Phase.STARTING, Phase.BUILDING) and not view.ran:
            self.stop()
        else:
            self.tell(b"renew")

    def interrupt(self, kind: Interrupt, target: str) -> None:
        """Make it raise out of what it does, if it still does that."""
        self._slot.ask(kind, target)
        self.process.send(signal.SIGUSR1)

    def kill(self, intent: Intent) -> None:
        """Kill it and all it started; the first intent counts."""
        self._intent = self._intent or intent
        self.process.kill()

    def bury(self) -> Death | None:
        """Once it has ended: kill what it left behind and say how it died; None while it runs."""
        code = self.process.exit_code
        if code is None:
            return None
        self.process.kill()
        view = self.view
        return Death(
            self.name,
            self.pid,
            code,
            view,
            self._intent,
            self.process.peak_mib,
            tuple(self.ledger.read().ends),
            beside=self.config.heritage is not None and not self.born,
            read=self._slot.variables_read(view),
        )

    def close(self) -> None:
        """Release what is kept of an executor that was buried."""
        with contextlib.suppress(OSError):
            self.control.close()
        self.process.close()
