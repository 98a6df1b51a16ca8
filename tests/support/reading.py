"""What an executor writes into its slot while it runs two jobs; for a process that is started anew, too."""

from __future__ import annotations

from envq.workers.slot import Phase, Slot


def read_some(slot: Slot) -> None:
    """The second job, which goes on running, has read ``model`` and ``cartpole``."""
    slot.note_read("ignored between jobs")
    slot.write(Phase.RUNNING, "first", "e1")
    slot.note_read("browser")
    slot.note_read("cartpole")
    slot.end_job()
    slot.write(Phase.RUNNING, "second", "e2")
    for name in ("model", "cartpole", "model"):
        slot.note_read(name)
