"""What travels by value and what by reference, and the modules shipped by value on request.

By reference means that a worker imports the module and looks the name up, as plain pickle does. By
value means that the code itself is sent: for ``__main__`` (a script, a notebook), lambdas, nested
functions, whatever its module does not hold under its own name, and every module named in
:func:`ship`.
"""

from __future__ import annotations

import functools
import importlib
import sys
import types
from operator import attrgetter
from typing import Any, cast

import cloudpickle  # pyright: ignore[reportMissingTypeStubs]

from envq.errors import PayloadError

# ``__mp_main__`` is what ``multiprocessing`` calls the main script in a spawned child.
MAIN_MODULES = frozenset({"__main__", "__mp_main__"})
_HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE: absent on types written in C as static structures


def underlying(obj: object) -> object:
    """The function that a task or another envq wrapper stands for; anything else is itself."""
    unwrap: Any = getattr(type(obj), "__envq_code__", None)
    return obj if unwrap is None else unwrap(obj)


def shipped_modules() -> set[str]:
    """Names of all modules that go by value, also those registered with cloudpickle directly."""
    return cast("set[str]", cloudpickle.list_registry_pickle_by_value())  # pyright: ignore[reportUnknownMemberType]


def is_shipped(module_name: str) -> bool:
    """Whether the module, or a package around it, goes by value."""
    shipped = shipped_modules()
    return bool(shipped) and any(module_name == name or module_name.startswith(f"{name}.") for name in shipped)


def reference_of(obj: object) -> tuple[str, str] | None:
    """Module and qualified name under which a worker can import this function or class; None: by value."""
    module_name, qualname = getattr(obj, "__module__", None), getattr(obj, "__qualname__", None)
    if not isinstance(module_name, str) or not isinstance(qualname, str):
        return None
    if isinstance(obj, type) and not obj.__flags__ & _HEAP_TYPE:
        return module_name, qualname
    if module_name in MAIN_MODULES or is_shipped(module_name):
        return None
    found = _find(module_name, qualname)
    return (module_name, qualname) if found is obj or underlying(found) is obj else None


def _find(module_name: str, qualname: str) -> object:
    module = sys.modules.get(module_name)
    try:
        return attrgetter(qualname)(module)
    except AttributeError:  # also every "<locals>" and "<lambda>"
        return None


def travels_by_value(function: object) -> bool:
    """Whether sending this callable sends code, rather than a name to import."""
    code = underlying(function)
    if isinstance(code, functools.partial):
        return travels_by_value(cast("functools.partial[Any]", code).func)
    if isinstance(code, types.MethodType):
        return travels_by_value(code.__func__)
    if isinstance(code, types.BuiltinFunctionType | types.BuiltinMethodType):
        return False
    named = isinstance(code, type | types.FunctionType) or hasattr(code, "__qualname__")
    return reference_of(code if named else type(code)) is None


def ship(module: types.ModuleType | str) -> None:
    """Send this module's code by value from now on, because workers do not have it installed.

    A package counts with all its modules. Raises PayloadError for what cannot be sent: compiled
    modules, the standard library and envq itself, which every worker has.
    """
    loaded = _imported(module) if isinstance(module, str) else module
    if not isinstance(cast("object", loaded), types.ModuleType):
        raise PayloadError(f"envq.ship takes a module or its name, not {type(loaded).__name__}")
    if loaded.__name__ in MAIN_MODULES:
        return
    if reason := _unshippable(loaded):
        raise PayloadError(f"module {loaded.__name__!r} cannot be shipped: {reason}")
    sys.modules.setdefault(loaded.__name__, loaded)
    cloudpickle.register_pickle_by_value(loaded)  # pyright: ignore[reportUnknownMemberType]


def _imported(name: str) -> types.ModuleType:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise PayloadError(f"module {name!r} cannot be shipped: not importable here ({error})") from error


def _unshippable(module: types.ModuleType) -> str:
    top = module.__name__.partition(".")[0]
    if top == "envq":
        return "every worker has envq"
    if top in sys.stdlib_module_names:
        return "it belongs to Python itself"
    file = getattr(module, "__file__", None)
    if isinstance(file, str) and not file.endswith((".py", ".pyc")):
        return "it is compiled; install it on the workers"
    return ""
