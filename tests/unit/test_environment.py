"""envq.env on a driver: what attribute access does, when code is published and when copies are built."""

from __future__ import annotations

import copy
import inspect
import logging
import pickle
import threading
from collections.abc import Callable, Iterator
from typing import Any

import cloudpickle
import pytest

from envq.code.payload import Blob
from envq.driver.scope import DriverScope
from envq.environment import Environment, bind, bound, current_scope, env
from envq.errors import DriverReadRefused, EnvironmentVariableFailed, InvalidDeclaration, NotDeclared, PayloadError
from envq.settings import Settings
from envq.store.declarations import Published
from envq.store.records import Declaration
from envq.testing import InlineDeclarations
from envq.variables import EnvironmentVariable


class Deployment:
    """A store in memory that remembers what was published, in order."""

    def __init__(self) -> None:
        self.settings = Settings()
        self.declarations = Recording()

    @property
    def published(self) -> list[str]:
        return self.declarations.published


class Recording(InlineDeclarations):
    def __init__(self) -> None:
        super().__init__()
        self.published: list[str] = []

    def publish(self, wanted: Declaration, blob: Blob) -> Published:
        self.published.append(wanted.name)
        return super().publish(wanted, blob)


@pytest.fixture
def deployment() -> Deployment:
    return Deployment()


@pytest.fixture
def scope(deployment: Deployment) -> Iterator[DriverScope]:
    """A driver's scope, bound, that has not connected yet."""
    new = DriverScope(lambda: deployment)
    before = bind(new)
    yield new
    bind(before)
    new.close()


@pytest.fixture
def connected(scope: DriverScope, deployment: Deployment) -> DriverScope:
    scope.connected(deployment)
    return scope


def in_main(function: Callable[..., Any]) -> Callable[..., Any]:
    """As if it were written in a script."""
    function.__module__ = "__main__"
    return function


def make() -> list[int]:
    return [1]


# attributes


@pytest.mark.parametrize("name", ["_private", "class", "not an identifier", "__len__"])
def test_names_that_cannot_be_read_as_attributes_are_refused(name: str, connected: DriverScope) -> None:
    with pytest.raises(InvalidDeclaration, match="cannot be the name"):
        setattr(env, name, EnvironmentVariable(make))


@pytest.mark.parametrize("value", [5, make, [1]])
def test_anything_but_a_variable_is_a_type_error_with_the_line_to_write(value: object, scope: DriverScope) -> None:
    with pytest.raises(TypeError, match=r"envq\.env\.x = envq\.EnvironmentVariable\("):
        env.x = value


def test_looking_for_dunder_names_does_not_ask_the_scope() -> None:
    assert not hasattr(env, "__deepcopy__")
    assert not hasattr(env, "_repr_html_")
    assert inspect.isdatadescriptor(env) is False


def test_the_environment_stays_itself_through_copy_and_both_pickles() -> None:
    assert copy.deepcopy(env) is env
    assert pickle.loads(pickle.dumps(env)) is env
    assert pickle.loads(cloudpickle.dumps(env)) is env
    assert isinstance(env, Environment)


def test_hasattr_is_false_for_a_name_nobody_declared_and_the_error_lists_those_declared(connected: DriverScope) -> None:
    env.known = EnvironmentVariable(make)
    assert not hasattr(env, "typo")
    with pytest.raises(NotDeclared, match=r"'typo'.*known"):
        _ = env.typo


def test_a_scope_bound_for_a_context_is_not_seen_by_another_thread(scope: DriverScope) -> None:
    other = DriverScope(lambda: pytest.fail("not to be connected"))
    seen: list[object] = []
    with bound(other):
        assert current_scope() is other
        thread = threading.Thread(target=lambda: seen.append(current_scope()))
        thread.start()
        thread.join()
    assert seen == [scope]


# publication


def test_what_is_declared_before_connecting_is_published_on_connect_in_order(
    scope: DriverScope, deployment: Deployment
) -> None:
    for name in ("b", "a", "c"):
        setattr(env, name, EnvironmentVariable(make))
    assert deployment.published == []
    scope.connected(deployment)
    assert deployment.published == ["b", "a", "c"]
    scope.connected(deployment)
    assert deployment.published == ["b", "a", "c"]


def test_declaring_while_connected_publishes_at_once_and_the_same_again_changes_nothing(
    connected: DriverScope, deployment: Deployment
) -> None:
    env.x = EnvironmentVariable(make)
    env.x = EnvironmentVariable(make)
    assert deployment.declarations.get("x").version == 1
    env.x = EnvironmentVariable(lambda: [2])
    assert deployment.declarations.get("x").version == 2


def test_code_that_cannot_travel_is_refused_where_it_is_declared_even_unconnected(
    scope: DriverScope, deployment: Deployment
) -> None:
    lock = threading.Lock()
    with pytest.raises(PayloadError, match=r"variable x.*lock"):
        env.x = EnvironmentVariable(lambda: lock)
    scope.connected(deployment)
    assert deployment.published == []


def test_a_scope_that_is_not_bound_never_publishes(scope: DriverScope, deployment: Deployment) -> None:
    env.x = EnvironmentVariable(make)
    bind(DriverScope(lambda: deployment))
    scope.connected(deployment)
    assert deployment.published == []


def test_a_lower_version_does_not_replace_a_higher_one_and_reads_give_the_higher(
    connected: DriverScope, deployment: Deployment, caplog: pytest.LogCaptureFixture
) -> None:
    env.x = EnvironmentVariable(lambda: "new", version=2)
    with caplog.at_level(logging.WARNING, "envq.env"):
        env.x = EnvironmentVariable(lambda: "old", version=1)
    assert "stays at version 2" in caplog.text
    assert env.x == "new"


def test_removing_takes_it_away_everywhere_with_teardown(connected: DriverScope, deployment: Deployment) -> None:
    torn: list[object] = []
    env.x = EnvironmentVariable(make, teardown=torn.append)
    assert env.x == [1]
    del env.x
    assert torn == [[1]]
    assert "x" not in deployment.declarations.snapshot().declarations
    assert not hasattr(env, "x")


# the driver's own copy


def test_importable_code_is_built_at_the_first_read_and_only_once(connected: DriverScope) -> None:
    built: list[int] = []

    def initializer() -> object:
        built.append(1)
        return object()

    env.x = EnvironmentVariable(initializer)
    assert built == []
    assert env.x is env.x
    assert built == [1]


def test_code_of_the_script_is_built_at_publication(scope: DriverScope, deployment: Deployment) -> None:
    built: list[int] = []
    env.x = EnvironmentVariable(in_main(lambda: built.append(1)))
    assert built == []
    scope.connected(deployment)
    assert built == [1]


def test_an_eager_build_that_raises_raises_there_and_publishes_nothing(
    connected: DriverScope, deployment: Deployment
) -> None:
    def broken() -> None:
        raise ZeroDivisionError("boom")

    with pytest.raises(ZeroDivisionError, match="boom") as raised:
        env.x = EnvironmentVariable(broken, driver="eager")
    assert raised.traceback[-1].name == "broken"
    assert deployment.published == []
    assert not hasattr(env, "x")


def test_a_build_that_fails_on_a_driver_shows_nothing_but_the_users_own_exception(
    connected: DriverScope, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(ZeroDivisionError) as raised:
        env.x = EnvironmentVariable(lambda: 1 / 0, driver="eager")
    assert raised.value.__cause__ is None
    env.x = EnvironmentVariable(lambda: 1 / 0)
    with pytest.raises(EnvironmentVariableFailed) as failed:
        _ = env.x
    assert str(failed.value) == "environment variable 'x' could not be built here: ZeroDivisionError: division by zero"
    assert caplog.text == ""


def test_a_pending_declaration_that_raises_makes_each_use_raise_and_keeps_those_behind_it(
    scope: DriverScope, deployment: Deployment
) -> None:
    env.first = EnvironmentVariable(make)
    env.broken = EnvironmentVariable(in_main(lambda: 1 / 0))
    env.last = EnvironmentVariable(make)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            scope.connected(deployment)
        assert deployment.published == ["first"]
    del env.broken
    scope.connected(deployment)
    assert deployment.published == ["first", "last"]


def test_a_redeclaration_whose_eager_build_fails_leaves_what_is_published(
    connected: DriverScope, deployment: Deployment
) -> None:
    env.x = EnvironmentVariable(lambda: "good", driver="eager")
    with pytest.raises(ZeroDivisionError):
        env.x = EnvironmentVariable(lambda: 1 / 0, driver="eager")
    assert deployment.declarations.get("x").version == 1
    assert env.x == "good"


@pytest.mark.parametrize("mode", ["lazy", "eager"])
def test_the_mode_of_the_process_decides_for_auto(mode: Any, scope: DriverScope, deployment: Deployment) -> None:
    built: list[int] = []
    scope.mode = mode
    env.x = EnvironmentVariable(in_main(lambda: built.append(1)))
    scope.connected(deployment)
    assert built == ([1] if mode == "eager" else [])


def test_a_driver_that_shall_not_hold_it_may_not_read_it(connected: DriverScope, deployment: Deployment) -> None:
    env.x = EnvironmentVariable(lambda: pytest.fail("built"), driver="never")
    assert deployment.published == ["x"]
    with pytest.raises(DriverReadRefused, match='driver="never"'):
        _ = env.x


def test_a_lazy_build_that_fails_says_so_with_its_cause_and_is_tried_again_at_the_next_read(
    connected: DriverScope,
) -> None:
    outcomes = iter([ConnectionError("down"), "up"])

    def initializer() -> object:
        outcome = next(outcomes)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    env.x = EnvironmentVariable(initializer)
    with pytest.raises(EnvironmentVariableFailed) as raised:
        _ = env.x
    assert isinstance(raised.value.__cause__, ConnectionError)
    assert env.x == "up"


def test_the_driver_s_copy_is_never_reset_also_when_another_build_reads_it(connected: DriverScope) -> None:
    env.base = EnvironmentVariable(make, lambda value: pytest.fail("reset"))
    env.base.append("mine")
    env.derived = EnvironmentVariable(lambda: [*env.base])
    assert env.derived == [1, "mine"]
    env.derived = EnvironmentVariable(lambda: (*env.base, 2))
    assert env.derived == (1, "mine", 2)
    assert env.base == [1, "mine"]


def test_redeclaring_other_code_replaces_the_copy_and_tears_the_old_one_down(connected: DriverScope) -> None:
    torn: list[object] = []
    env.x = EnvironmentVariable(make, teardown=torn.append)
    assert env.x == [1]
    env.x = EnvironmentVariable(lambda: "other")
    assert env.x == "other"
    assert torn == [[1]]


def test_what_another_driver_declared_is_fetched_and_built_here(connected: DriverScope, deployment: Deployment) -> None:
    env.x = EnvironmentVariable(lambda: "from the other side")
    second = DriverScope(lambda: deployment)
    with bound(second):
        assert env.x == "from the other side"
        assert "x" in dir(env)
    second.close()


def test_threads_that_ask_at_once_get_one_build(connected: DriverScope) -> None:
    built: list[int] = []
    barrier = threading.Barrier(8)
    env.x = EnvironmentVariable(in_main(lambda: built.append(1) or object()), driver="lazy")
    seen: list[object] = []

    def read() -> None:
        barrier.wait()
        seen.append(env.x)

    threads = [threading.Thread(target=read) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert built == [1]
    assert len(set(map(id, seen))) == 1
