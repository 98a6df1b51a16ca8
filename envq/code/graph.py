"""A digest of a graph of values, whatever the sharing, the entry points of cycles and the order of sets.

Acyclic parts are hashed bottom up. Parts that reach a cycle have no bottom: their nodes are
coloured by their own content, then again and again by the colours of their children, until no round
tells more nodes apart. Two graphs get the same digest exactly when nobody who follows their edges
could tell them apart, save for hash collisions.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(eq=False, slots=True)
class Node:
    """A value that reaches a cycle: ordered parts, and children whose order means nothing."""

    tag: bytes = b""
    parts: list[Form] = field(default_factory=list["Form"])
    bag: list[Node] = field(default_factory=list["Node"])


Form = bytes | Node  # a finished digest (or a short value itself), or what is still open


def hash_parts(parts: Iterable[bytes]) -> bytes:
    """One digest of several byte strings, which cannot be shifted from one into the next."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(b"%d:" % len(part))
        digest.update(part)
    return digest.digest()


def _text(value: str) -> bytes:
    return b"s" + value.encode("utf-8", "surrogatepass")


# Values that are their own form, each kind with a letter of its own in front.
ATOMS: Mapping[type, Callable[[Any], bytes]] = {
    str: _text,
    bytes: lambda value: b"b" + value,
    bytearray: lambda value: b"B" + value,
    int: lambda value: b"i%x" % value,
    bool: lambda value: b"t" if value else b"f",
    float: lambda value: b"d" + struct.pack(">d", value),
    complex: lambda value: b"c" + struct.pack(">dd", value.real, value.imag),
    type(None): lambda _: b"n",
    type(...): lambda _: b"e",
    type(NotImplemented): lambda _: b"N",
}


class Graph:
    """Collects the nodes that reach a cycle, and gives the digest of a root in the end."""

    def __init__(self) -> None:
        self._open: list[Node] = []

    def seal(self, tag: bytes, parts: list[Form], bag: Iterable[Form] = (), node: Node | None = None) -> Form:
        """A digest if all the parts are closed, else a node (``node`` if given)."""
        members = list(bag)
        parts = [*parts, *sorted(member for member in members if isinstance(member, bytes))]
        open_members = [member for member in members if isinstance(member, Node)]
        if not open_members:
            closed = [part for part in parts if isinstance(part, bytes)]
            if len(closed) == len(parts):
                return hash_parts((tag, *closed))
        node = node or Node()
        node.tag, node.parts, node.bag = tag, parts, open_members
        self._open.append(node)
        return node

    def digest(self, root: Form) -> str:
        """Hex digest of everything that can be reached from the root."""
        if isinstance(root, bytes):
            return hash_parts((b"closed", root)).hex()
        colours = self._stable_colours()
        return hash_parts((b"open", colours[root], *sorted(set(colours.values())))).hex()

    def _stable_colours(self) -> dict[Node, bytes]:
        colours, distinct = dict.fromkeys(self._open, b""), 0
        while True:
            colours = {node: _colour(node, colours) for node in self._open}
            before, distinct = distinct, len(set(colours.values()))
            if distinct == before:
                return colours


def _colour(node: Node, colours: dict[Node, bytes]) -> bytes:
    ordered = [part if isinstance(part, bytes) else b"node" + colours[part] for part in node.parts]
    return hash_parts((node.tag, *ordered, b"bag", *sorted(colours[member] for member in node.bag)))
