"""``envq env list`` and ``envq env show``."""

from __future__ import annotations

from envq.cli.printing import print_json, print_table
from envq.cli.readiness import readiness
from envq.cli.render import DECLARATION_HEADERS, declaration_json, declaration_lines, declaration_row
from envq.cli.target import opened
from envq.store.declarations import not_declared


def list_variables(url: str | None, namespace: str | None, *, as_json: bool) -> int:
    """All variables with their state over the executors."""
    with opened(url, namespace) as target:
        snapshot, executors = target.declarations.snapshot(), target.executors.all()
    known = [
        (declaration, readiness(name, snapshot, executors))
        for name, declaration in sorted(snapshot.declarations.items())
    ]
    if as_json:
        print_json([declaration_json(*each) for each in known])
    else:
        rows = [declaration_row(*each) for each in known]
        print_table("Variables", DECLARATION_HEADERS, rows, empty="no variables are declared")
    return 0


def show_variable(name: str, url: str | None, namespace: str | None, *, as_json: bool) -> int:
    """One variable in full."""
    with opened(url, namespace) as target:
        target.declarations.get(name)
        snapshot, executors = target.declarations.snapshot(), target.executors.all()
    if name not in snapshot.declarations:  # removed meanwhile
        raise not_declared(name, snapshot.declarations)
    declaration, state = snapshot.declarations[name], readiness(name, snapshot, executors)
    if as_json:
        print_json(declaration_json(declaration, state))
    else:
        print("\n".join(declaration_lines(declaration, state)))
    return 0
