"""The Python prompt of ``envq dev``."""

from __future__ import annotations

import code
import sys
import types
from importlib.metadata import version

import envq
from envq.cli.render import plural
from envq.cli.terminal import Terminal
from envq.driver.client import Client

try:
    import rlcompleter
except ImportError:  # without readline there is nothing to complete
    rlcompleter = None


class Console(code.InteractiveConsole):
    """A prompt that shares its terminal with workers' lines."""

    def __init__(self, terminal: Terminal, names: dict[str, object]) -> None:
        super().__init__(names, filename="<envq dev>")
        self._terminal = terminal

    def raw_input(self, prompt: str = "") -> str:
        return self._terminal.read(prompt)


def interact(client: Client, terminal: Terminal, workers: int) -> int:
    """Run the prompt until Ctrl-D or exit(); the exit code."""
    main = types.ModuleType("__main__")
    vars(main).update(envq=envq, client=client)
    # Code typed here belongs to __main__, so that it travels to the workers by value.
    sys.modules["__main__"] = main
    sys.path.insert(0, "")
    _complete(vars(main))
    banner = (
        f"envq {version('envq')} with {plural(workers, 'executor')}; elsewhere: export ENVQ_URL={client.settings.url}\n"
        "Try: envq.get(envq.task(lambda: 6 * 7).enqueue()). Ctrl-D ends."
    )
    try:
        Console(terminal, vars(main)).interact(banner=banner, exitmsg="")
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    return 0


def _complete(names: dict[str, object]) -> None:
    if rlcompleter is None:
        return
    import readline  # noqa: PLC0415 - present where rlcompleter is

    readline.set_completer(rlcompleter.Completer(names).complete)
    readline.parse_and_bind("tab: complete")
