"""Garbage in the keys that no job owns: the worker leaves it out, says so in one line, and goes on; so do the tools."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
from support.bad_input import row
from support.deployment import Deployment
from support.waiting import eventually

import envq
from envq.cli.app import run
from envq.cli.options import Invocation
from envq.driver.client import Client
from envq.store.keys import Keys, worker_commands

DIGEST = "ab" * 32
KEYS = Keys()


class Scene:
    """A deployment with one variable, and what it takes to spoil it."""

    def __init__(self, deployment: Deployment, driver: Client) -> None:
        self.redis: redis.Redis = deployment.redis
        self.worker = deployment.worker
        self.executor = deployment.worker.executors()[0]
        self.header: dict[str, Any] = json.loads(self.redis.hget(KEYS.declarations, "ok") or b"{}")
        self.code = self.redis.get(KEYS.code(self.header["digest"])) or b""
        self._said = len(deployment.worker.output)

    @property
    def said(self) -> str:
        """What the worker has logged since."""
        return self.worker.output[self._said :]

    def ring(self) -> None:
        """Have all executors look at the declarations again."""
        counter, _, life = (self.redis.get(KEYS.generation) or b"").decode().split(":")
        self.redis.set(KEYS.generation, f"{int(counter) + 1}:{os.urandom(4).hex()}:{life}")
        self.redis.publish(KEYS.env_channel, "x")

    def declare(self, text: str | bytes | None = None, name: str | bytes = "x", **changes: Any) -> None:
        """Write a header for x: this text, or the one of ok with changes."""
        given = json.dumps(self.header | {"name": "x"} | changes) if text is None else text
        self.redis.hset(KEYS.declarations, name, given)
        self.ring()

    def declare_code(self, code: bytes | None) -> None:
        """Declare x with this for its code."""
        if code is not None:
            self.redis.set(KEYS.code(DIGEST), code)
        self.declare(digest=DIGEST)

    def clean(self) -> None:
        """As it was."""
        self.redis.hdel(KEYS.declarations, "x", b"\xff\xfe")
        self.redis.delete(KEYS.code(DIGEST))
        self.ring()

    @contextlib.contextmanager
    def replaced(self, key: str, write: Callable[[str], object]) -> Iterator[None]:
        """Something else is stored under a key."""
        before = self.redis.dump(key)
        self.redis.delete(key)
        write(key)
        self.redis.publish(KEYS.env_channel, "x")
        yield
        self.redis.delete(key)
        if before:
            self.redis.restore(key, 0, before)  # type: ignore[arg-type]


def changed(old: bytes, new: bytes) -> Callable[[bytes], bytes]:
    def change(code: bytes) -> bytes:
        found = re.sub(old, new, code)
        assert found != code
        return found

    return change


def packed_number(code: bytes) -> bytes:
    body = pickle.dumps(3)
    return re.sub(rb'"size": \d+', b'"size": %d' % len(body), code.partition(b"\n")[0]) + b"\n" + body


HEADERS: dict[str, Callable[[Scene], None]] = {
    "redis-declaration-text": lambda scene: scene.declare("{"),
    "redis-declaration-bytes": lambda scene: scene.declare(b"\xff\xfe"),
    "redis-declaration-list": lambda scene: scene.declare("[]"),
    "redis-declaration-deep": lambda scene: scene.declare("[" * 100_000),
    "redis-declaration-short": lambda scene: scene.declare('{"name": "x"}'),
    "redis-declaration-version": lambda scene: scene.declare(version="one"),
    "redis-declaration-queues": lambda scene: scene.declare(queues=3),
    "redis-declaration-timeout": lambda scene: scene.declare(init_timeout=-1),
    "redis-declaration-build": lambda scene: scene.declare(build="soon"),
    "redis-declaration-required": lambda scene: scene.declare(required="yes"),
    "redis-declaration-name": lambda scene: scene.declare(name="x", text=json.dumps(scene.header | {"name": "y"})),
    "redis-declaration-key": lambda scene: scene.declare(name=b"\xff\xfe"),
    "redis-code-missing": lambda scene: scene.declare_code(None),
    "redis-code-garbage": lambda scene: scene.declare_code(b"garbage"),
    "redis-code-truncated": lambda scene: scene.declare_code(scene.code[:-5]),
    "redis-code-python": lambda scene: scene.declare_code(
        changed(rb'"python": "[^"]+"', b'"python": "2.7"')(scene.code)
    ),
    "redis-code-format": lambda scene: scene.declare_code(changed(rb'"format": \d+', b'"format": 99')(scene.code)),
    "redis-code-value": lambda scene: scene.declare_code(packed_number(scene.code)),
}


@pytest.fixture
def scene(deployment: Deployment, driver: Client) -> Iterator[Scene]:
    """With one good variable, which serves throughout; afterwards as before, and nobody was replaced."""
    envq.env.ok = envq.EnvironmentVariable(lambda: [7], lambda value: value)
    envq.wait_ready("ok", timeout=20)
    scene = Scene(deployment, driver)
    before = deployment.worker.executors()
    yield scene
    scene.clean()
    assert reads_ok() == [7]
    assert deployment.worker.executors() == before, "the executor was replaced"
    del envq.env.ok


def reads_ok() -> object:
    return envq.get(envq.Queue().enqueue(lambda: envq.env.ok), timeout=10)


def tools_answer(driver: Client) -> None:
    """`envq info`, `envq env list` and `envq health` say what they know, or one sentence."""
    for command in (["info"], ["info", "--json"], ["env", "list"], ["health"]):
        try:
            run(Invocation(), [*command, "--url", driver.settings.url])
        except envq.EnvqError as error:
            assert "\n" not in str(error)


@pytest.mark.parametrize("spoiled", HEADERS)
def test_a_declaration_that_cannot_be_used_harms_no_other(spoiled: str, scene: Scene, driver: Client) -> None:
    HEADERS[spoiled](scene)
    assert reads_ok() == [7]

    def told() -> None:
        row(spoiled).assert_told(scene.said)

    eventually(told)
    tools_answer(driver)


def write_string(client: redis.Redis) -> Callable[[str], object]:
    return lambda key: client.set(key, "x")


REPLACED: dict[str, tuple[str, Callable[[redis.Redis], Callable[[str], object]]]] = {
    "redis-generation-garbage": (KEYS.generation, lambda client: lambda key: client.set(key, b"\xff\xfe")),
    "redis-generation-text": (KEYS.generation, write_string),
    "redis-events-string": (KEYS.events, write_string),
    "redis-settle-unknown": (KEYS.settle, lambda client: lambda key: client.rpush(key, "no-such-job", "a b", "")),
    "redis-registry-string": ("rq:finished:default", write_string),
    "redis-workers-string": ("rq:workers:default", write_string),
}


@pytest.mark.parametrize("spoiled", REPLACED)
def test_something_else_under_a_key_stops_no_job(spoiled: str, scene: Scene, driver: Client) -> None:
    assert "nothing to tell" in row(spoiled).gets
    key, write = REPLACED[spoiled]
    with scene.replaced(key, write(scene.redis)):
        assert reads_ok() == [7]
        tools_answer(driver)
        if key == KEYS.generation:
            envq.env.x = envq.EnvironmentVariable(dict)
            envq.wait_ready("x", timeout=20)
            del envq.env.x


def foreign_claims(scene: Scene) -> None:
    scene.redis.rpush(KEYS.claims(scene.executor), "no-such-job", "a:b", "")


def garbage_events(scene: Scene) -> None:
    scene.redis.xadd(KEYS.events, {"event": "garbage"})
    scene.redis.xadd(KEYS.events, {"no": "event"})
    scene.redis.publish(KEYS.events_channel, b"\xff")


def garbage_commands(scene: Scene) -> None:
    for garbage in (b"\xff", b"[]", b"null", b"[" * 100_000, b'{"command": 3}'):
        assert scene.redis.publish(worker_commands(scene.executor), garbage)


def garbage_executor(scene: Scene) -> None:
    scene.redis.zadd(KEYS.executors, {"garbage": 2**60})
    scene.redis.hset(KEYS.executor("garbage"), mapping={"info": "{", "variable:x": "[]", b"\xff": "x"})


def garbage_tries(scene: Scene) -> None:
    scene.redis.hset(KEYS.tries("x", 1), mapping={b"\xff": b"x", "without-host": "y"})
    envq.env.x = envq.EnvironmentVariable(dict)
    envq.wait_ready("x", timeout=20)
    del envq.env.x


ADDED: dict[str, Callable[[Scene], object]] = {
    "redis-claims-unknown": foreign_claims,
    "redis-events-garbage": garbage_events,
    "redis-channel-garbage": lambda scene: scene.redis.publish(KEYS.env_channel, b"\xff" * 100_000),
    "redis-commands-garbage": garbage_commands,
    "redis-executors-foreign": lambda scene: scene.redis.zadd(KEYS.executors, {"foreign": 1}),
    "redis-executors-bytes": lambda scene: scene.redis.zadd(KEYS.executors, {b"\xff\xfe": 1}),  # type: ignore[dict-item]
    "redis-executor-garbage": garbage_executor,
    "redis-tries-garbage": garbage_tries,
}


@pytest.mark.parametrize("spoiled", ADDED)
def test_garbage_beside_what_is_right_stops_no_job(spoiled: str, scene: Scene, driver: Client) -> None:
    ADDED[spoiled](scene)
    assert reads_ok() == [7]
    tools_answer(driver)

    def told() -> None:
        if "nothing to tell" not in row(spoiled).gets:
            row(spoiled).assert_told(scene.said)

    eventually(told, timeout=40)  # the reaper looks every few seconds
    scene.redis.zrem(KEYS.executors, "garbage", b"\xff\xfe")
    scene.redis.delete(KEYS.executor("garbage"), KEYS.tries("x", 1))
    assert "Traceback" not in scene.said


def test_what_nobody_can_read_is_replaced_by_a_new_declaration(scene: Scene) -> None:
    scene.declare("{")
    envq.env.x = envq.EnvironmentVariable(lambda: "new", lambda value: value)
    assert envq.get(envq.Queue().enqueue(lambda: envq.env.x), timeout=10) == "new"
    scene.declare("{")
    del envq.env.x
    assert not scene.redis.hexists(KEYS.declarations, "x")
