"""The life cycle of values inside one process: build, hand out, reset, rebuild, let go. Pure: does no I/O."""

from envq.runtime.ports import Limits, Listener, NoLimits, Quarantined, TimeLimit
from envq.runtime.recipe import Callables, Recipe
from envq.runtime.runtime import Runtime
from envq.runtime.slot import ATTEMPTS, RETRY_DELAYS
from envq.runtime.states import State, ValueState

__all__ = [
    "Runtime",
    # what it is given
    "Callables",
    "Limits",
    "Listener",
    "NoLimits",
    "Recipe",
    # what it tells
    "State",
    "ValueState",
    # what is raised into it
    "Quarantined",
    "TimeLimit",
    # how often a failing build is tried
    "ATTEMPTS",
    "RETRY_DELAYS",
]
