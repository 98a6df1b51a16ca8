"""The digest of code and values by which "the same code" is recognised.

The same program gives the same digest in every process of one Python minor version: file names,
line numbers, hash order of sets and dicts, identity and sharing of objects do not count; comments
and blank lines do not either. Any constant, default, captured value, referenced global, called
function or class that travels by value does count.

Covered: functions of all kinds (lambdas, closures, nested, decorated, recursive, generator,
coroutine), bound methods, ``functools.partial`` and ``lru_cache``, classes (dataclasses, enums,
abstract, slotted, generic), callable instances, tasks (by their function), modules (by name;
shipped ones by their source too), plain containers (a dict without its order, as in ``==``), and
any other object through pickle's reduction. Importable functions and classes count by module,
qualified name and the source file of their module, save for Python's own and envq's, which count by
name.
"""

from __future__ import annotations

import enum
import sys
import types
import typing
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

from envq.code.codeform import POSITIONAL_CLASS_NAMES, code_parts, global_names, module_source_digest
from envq.code.graph import ATOMS, Form, Graph, Node
from envq.code.reduction import reduce
from envq.code.shipping import MAIN_MODULES, is_shipped, reference_of, underlying
from envq.errors import PayloadError

# Set by Python on every module or class, and different for the same code in another place or run.
# The generated ``__doc__`` of a dataclass spells out its defaults, with addresses and in hash order.
_MODULE_NAMES = frozenset(
    {
        "__builtins__", "__cached__", "__file__", "__loader__",
        "__name__", "__package__", "__path__", "__spec__",
    }
)  # fmt: skip
_CLASS_NAMES = POSITIONAL_CLASS_NAMES | {
    "__module__", "__dict__", "__weakref__", "_abc_impl", "__abstractmethods__", "__annotate_func__",
    "__annotations_cache__", "__classdictcell__", "__doc__",
}  # fmt: skip
_ENUM_NAMES = frozenset(
    {
        "_generate_next_value_", "_member_names_", "_member_map_", "_member_type_", "_value2member_map_",
        "_unhashable_values_", "_unhashable_values_map_", "_hashable_values_", "_new_member_", "_use_args_",
        "_value_repr_", "_singles_mask_", "_boundary_", "_flag_mask_", "_all_bits_", "_inverted_", "__new__",
    }
)  # fmt: skip
_DESCRIPTORS = (
    types.MemberDescriptorType, types.GetSetDescriptorType, types.MethodDescriptorType,
    types.WrapperDescriptorType, types.ClassMethodDescriptorType,
)  # fmt: skip


def code_digest(obj: object) -> str:
    """Hex digest of a callable, or of a tuple of callables, with everything it takes along.

    Raises PayloadError when a captured object can neither be named nor taken apart.
    """
    walk = Walk()
    try:
        return walk.graph.digest(walk.form(obj))
    except RecursionError as error:
        raise PayloadError("a captured value is nested too deeply to be sent") from error


class Walk:
    """One walk over everything an object reaches; remembers what it has seen, by identity."""

    def __init__(self) -> None:
        self.graph = Graph()
        self._seen: dict[int, Form] = {}
        # Identities are only meaningful while the objects live.
        self._kept_alive: list[object] = []

    def form(self, obj: object) -> Form:
        """The form of any object; short immutable values are their own."""
        encode = ATOMS.get(type(obj))
        if encode is not None:
            return encode(obj)
        obj = underlying(obj)
        key = id(obj)
        if key not in self._seen:
            self._kept_alive.append(obj)
            self._seen[key] = node = Node()
            self._seen[key] = self._compound(obj, node)
        return self._seen[key]

    def _compound(self, obj: Any, node: Node) -> Form:
        walker = _WALKERS.get(type(cast("object", obj)))
        if walker is not None:
            tag, parts, bag = walker(self, obj)
        elif isinstance(obj, type):
            tag, parts, bag = _walk_class(self, obj)
        elif isinstance(obj, enum.Enum):
            tag, parts, bag = b"member", self.forms(type(obj), obj.name, obj.value), ()
        elif isinstance(obj, types.ModuleType):
            tag, parts, bag = _walk_module(self, obj)
        else:
            tag, parts, bag = self.reduced(obj)
        return self.graph.seal(tag, parts, bag, node)

    def forms(self, *objects: object) -> list[Form]:
        """The forms of several objects in order."""
        return [self.form(obj) for obj in objects]

    def pairs(self, items: Iterable[tuple[object, object]]) -> list[Form]:
        """One form for each pair, as the members of a mapping."""
        return [self.graph.seal(b"pair", self.forms(key, value)) for key, value in items]

    def reduced(self, obj: object) -> Parts:
        """The parts of an object of any other type, by pickle's reduction."""
        try:
            reduction = reduce(obj)
        except RecursionError:
            raise
        except Exception as error:  # noqa: BLE001 - reductions are user code
            return self.irreducible(obj, error)
        if isinstance(reduction, str):
            return b"name", self.forms(str(getattr(obj, "__module__", "")), reduction), ()
        return _walk_reduced(self, obj, reduction)

    def captured_globals(self, function: types.FunctionType) -> list[tuple[object, object]]:
        """The globals that a function which travels by value takes along, with their names."""
        names, known = global_names(function.__code__), function.__globals__
        return [(name, known[name]) for name in names if name in known and name not in _MODULE_NAMES]

    def irreducible(self, obj: object, error: Exception) -> Parts:
        """What stands for an object whose reduction raised."""
        name = f"{type(obj).__module__}.{type(obj).__qualname__}"
        raise PayloadError(f"an object of type {name} cannot be sent ({error})") from error


Parts = tuple[bytes, list[Form], Iterable[Form]]


def _walk_reduced(walk: Walk, obj: object, reduced: tuple[Any, ...]) -> Parts:
    function, args, state, items, pairs, setter = (*reduced, None, None, None, None)[:6]
    parts = walk.forms(function, args, state, setter, list(items or ()))
    entries = walk.pairs(pairs or ())
    if isinstance(obj, OrderedDict):
        return b"ordered", [*parts, *entries], ()
    return b"object", parts, entries


def _walk_sequence(walk: Walk, obj: Iterable[object]) -> Parts:
    return type(obj).__name__.encode(), walk.forms(*obj), ()


def _walk_set(walk: Walk, obj: Iterable[object]) -> Parts:
    return type(obj).__name__.encode(), [], walk.forms(*obj)


def _walk_dict(walk: Walk, obj: dict[object, object]) -> Parts:
    return b"dict", [], walk.pairs(obj.items())


def _walk_code(walk: Walk, code: types.CodeType) -> Parts:
    # Equal bytes mean different things to two minor versions.
    return b"code", walk.forms(sys.version_info[:2], *code_parts(code)), ()


def _walk_cell(walk: Walk, cell: types.CellType) -> Parts:
    try:
        return b"cell", walk.forms(cell.cell_contents), ()
    except ValueError:  # not filled yet
        return b"empty cell", [], ()


def _walk_method(walk: Walk, method: types.MethodType) -> Parts:
    return b"method", walk.forms(method.__func__, method.__self__), ()


def _walk_descriptor(walk: Walk, descriptor: Any) -> Parts:
    return b"descriptor", walk.forms(type(descriptor).__name__, descriptor.__name__), ()


def _walk_type_var(walk: Walk, var: typing.TypeVar) -> Parts:
    variance = (var.__covariant__, var.__contravariant__)
    return b"TypeVar", walk.forms(var.__name__, var.__bound__, var.__constraints__, variance), ()


def _walk_module(walk: Walk, module: types.ModuleType) -> Parts:
    name = module.__name__
    if name in MAIN_MODULES:
        return b"main module", [], ()
    if sys.modules.get(name) is module:
        return b"module", walk.forms(name, module_source_digest(name) if is_shipped(name) else ""), ()
    contents = [item for item in vars(module).items() if item[0] not in _MODULE_NAMES]
    return b"dynamic module", walk.forms(name), walk.pairs(contents)


def _reference(walk: Walk, obj: object) -> Parts | None:
    if (reference := reference_of(obj)) is None:
        return None
    return b"reference", walk.forms(*reference, module_source_digest(reference[0])), ()


def _walk_function(walk: Walk, function: types.FunctionType) -> Parts:
    if (reference := _reference(walk, function)) is not None:
        return reference
    parts = walk.forms(
        function.__qualname__, function.__code__, function.__closure__, function.__defaults__,
        function.__kwdefaults__, tuple(function.__annotations__.items()), function.__doc__, vars(function),
    )  # fmt: skip
    return b"function", parts, walk.pairs(walk.captured_globals(function))


def _walk_class(walk: Walk, cls: type) -> Parts:
    if (reference := _reference(walk, cls)) is not None:
        return reference
    members = tuple((name, member.value) for name, member in _enum_members(cls).items())
    bases = cls.__dict__.get("__orig_bases__", cls.__bases__)
    parts = walk.forms(cls.__qualname__, type(cls), bases, members)
    return b"class", parts, walk.pairs(_class_items(cls))


def _enum_members(cls: Any) -> Mapping[str, enum.Enum]:
    return cast("Mapping[str, enum.Enum]", cls.__members__) if issubclass(cls, enum.Enum) else {}


def _class_items(cls: type) -> list[tuple[object, object]]:
    # Slots count by their names in ``__slots__``; a class rebuilt by a worker has no descriptors for them.
    slots = (types.MemberDescriptorType, types.GetSetDescriptorType)
    items = [(k, v) for k, v in vars(cls).items() if k not in _CLASS_NAMES and not isinstance(v, slots)]
    if members := _enum_members(cls):
        items = [item for item in items if item[0] not in _ENUM_NAMES and item[0] not in members]
    return [(key, _ordered(value) if key == "__annotations__" else value) for key, value in items]


def _ordered(annotations: Any) -> object:
    """Fields of a class have an order, which its generated constructor follows."""
    return tuple(annotations.items()) if isinstance(annotations, dict) else annotations  # pyright: ignore[reportUnknownMemberType,reportUnknownArgumentType,reportUnknownVariableType]


_WALKERS = cast(
    "Mapping[type, Callable[[Walk, Any], Parts]]",
    {
        tuple: _walk_sequence,
        list: _walk_sequence,
        set: _walk_set,
        frozenset: _walk_set,
        dict: _walk_dict,
        types.FunctionType: _walk_function,
        types.CodeType: _walk_code,
        types.CellType: _walk_cell,
        types.MethodType: _walk_method,
        types.ModuleType: _walk_module,
        typing.TypeVar: _walk_type_var,
        **dict.fromkeys(_DESCRIPTORS, _walk_descriptor),
    },
)
