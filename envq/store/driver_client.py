"""A producer's client: a bounded pool for threads and forks, and a short way for scripts."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import partial
from typing import Any, Final, cast
from weakref import WeakSet

import redis
from redis.client import Pipeline

from envq.store.patience import Patience, given_up
from envq.store.replies import NOTHING_DONE
from envq.store.trouble import for_driver

try:
    import hiredis
except ImportError:  # no build for this Python; redis-py does without it as well
    hiredis = None
_pack: Any = getattr(hiredis, "pack_command", None)  # old ones have none
_TOLD_TO_RECONNECT: Final = hasattr(redis.Connection, "should_reconnect")  # since redis-py 5.1
_LOST: Final = (redis.ConnectionError, redis.TimeoutError, OSError)
_BLOCKING: Final = frozenset(
    ("XREAD", "XREADGROUP", "BLPOP", "BRPOP", "BLMOVE", "BRPOPLPUSH", "BLMPOP", "BZPOPMIN", "BZPOPMAX", "BZMPOP")
)
_BLOCKS_S: Final = "envq_blocks_s"


class DriverPool(redis.ConnectionPool):
    """
    At most ``max_connections`` connections per process; more threads wait up to ``timeout`` seconds for one.

    Unlike redis-py's BlockingConnectionPool it takes no lock while there are connections to give, and a forked child
    waits for no lock that a thread of its parent held.

    Attributes:
        made: how often a connection was made
    """

    def __init__(self, *, timeout: float, **options: Any) -> None:
        self._timeout_s = timeout
        self.made = 0
        self._renew_locks()
        super().__init__(**options)
        _pools.add(self)

    def get_connection(self, *_: Any, **__: Any) -> Any:
        """A connection with nothing unread on it; redis.ConnectionError where none becomes free."""
        if self.pid != os.getpid():  # not every fork runs Python's hooks: uWSGI's does so on request only
            self._checkpid()
        connection = self._pop()
        if connection is None:
            connection = self._wait_for_one()
        self._in_use.add(connection)
        try:
            self.made += _make_ready(connection)
        except BaseException:
            self.release(connection)
            raise
        return connection

    def freshen(self) -> None:
        """Have the connection that is used next, and find out whether the server has closed it meanwhile."""
        self.release(self.get_connection())

    def get_settled(self) -> Any:
        """The same for a caller that can do with one that the server has closed; spares a look at the socket."""
        if self.pid != os.getpid():
            self._checkpid()
        try:
            connection = self._settled.pop()
        except IndexError:
            return self.get_connection()
        self._in_use.add(connection)
        return connection

    def release(self, connection: Any, *, settled: bool = False) -> None:
        """
        Give it back; one that belongs to the parent of this process is closed here, and stays open there.

        Args:
            settled: whether each reply to what was sent on it has been read
        """
        if self.pid != os.getpid():
            self._checkpid()
        if connection not in self._in_use:
            if connection.pid != self.pid:
                connection.disconnect()
            return
        if _TOLD_TO_RECONNECT and connection.should_reconnect():
            connection.disconnect()
        self._in_use.discard(connection)
        if not self._waiters:
            (self._settled if settled else self._idle).append(connection)
            if not self._waiters:  # looked at again: whoever comes to wait looks for an idle one after that
                return
            connection = None
        with self._queue_lock:
            if connection is not None:  # the one who waits longest gets it, not whoever comes along
                self._idle.append(connection)
            self._serve_waiters()

    def disconnect(self, inuse_connections: bool = True) -> None:
        """Close its connections; those in use too, unless told otherwise."""
        self._checkpid()
        for connection in [*self._idle, *self._settled, *(self._in_use if inuse_connections else ())]:
            connection.disconnect()

    def reset(self) -> None:
        """Forget all connections."""
        # Before redis-py notes the process id, by which other threads see that this is done.
        self._idle: list[Any] = []
        self._settled: list[Any] = []
        self._in_use: set[Any] = set()
        super().reset()
        self._available_connections, self._in_use_connections = self._idle, self._in_use

    def after_fork(self) -> None:
        """In the child, before it has a second thread: the connections are the parent's."""
        self._renew_locks()
        self.reset()

    def _renew_locks(self) -> None:
        self._queue_lock = threading.Lock()
        self._waiters: deque[_Waiter] = deque()
        self._lock = threading.RLock()
        self._fork_lock = threading.RLock()

    def _pop(self) -> Any:
        # Taking from a list's end, and putting there, is atomic; others do so at the same time.
        for connections in (self._idle, self._settled):
            with suppress(IndexError):
                return connections.pop()
        return None

    def _wait_for_one(self) -> Any:
        """What is given back next, in the order in which threads came, or a new one where there may be more."""
        with self._queue_lock:
            if (connection := self._pop()) is not None:
                return connection
            if self._created_connections < self.max_connections:
                return cast(Any, self.make_connection())
            waiter = _Waiter()
            self._waiters.append(waiter)
            self._serve_waiters()  # one may have been given back since
        try:
            waiter.served.wait(self._timeout_s)
        except BaseException:
            self._leave(waiter)
            raise
        connection = self._leave(waiter, keep=True)
        if connection is None:
            raise redis.ConnectionError(f"all {self.max_connections} connections are in use")
        return connection

    def _leave(self, waiter: _Waiter, *, keep: bool = False) -> Any:
        with self._queue_lock:
            if waiter in self._waiters:
                self._waiters.remove(waiter)
            elif not keep:
                self._idle.append(waiter.connection)
                self._serve_waiters()
            return waiter.connection

    def _serve_waiters(self) -> None:
        while self._waiters and (connection := self._pop()) is not None:
            waiter = self._waiters.popleft()
            waiter.connection = connection
            waiter.served.set()


class _Waiter:
    def __init__(self) -> None:
        self.served = threading.Event()
        self.connection: Any = None


class InDoubt(redis.RedisError):
    """A connection was lost in a transaction: whether it was committed is to be asked. No ConnectionError, or redis-py
    would send it again."""


@contextmanager
def sent_once() -> Generator[None]:
    """Transactions of a DriverClient that begin in here, in this thread, are not repeated; they raise InDoubt."""
    token = _SENT_ONCE.set(True)
    try:
        yield
    finally:
        _SENT_ONCE.reset(token)


_SENT_ONCE: ContextVar[bool] = ContextVar("_SENT_ONCE", default=False)


class DriverPipeline(Pipeline):
    """redis-py's, with the same errors."""

    tell: Callable[[Callable[[], Any]], Any]

    def execute(self, raise_on_error: bool = True) -> list[Any]:
        """Send what was collected."""
        return cast("list[Any]", self.tell(lambda: super(DriverPipeline, self).execute(raise_on_error)))

    def immediate_execute_command(self, *args: Any, **options: Any) -> Any:
        """Send one command at once, as WATCH is."""
        return self.tell(lambda: cast(Any, super(DriverPipeline, self)).immediate_execute_command(*args, **options))


class _Once(DriverPipeline):
    """Raises InDoubt where redis-py would send it again, or have it begun anew as if nothing had been sent."""

    def _execute_transaction(self, connection: Any, commands: Any, raise_on_error: bool) -> Any:
        try:
            return cast(Any, super())._execute_transaction(connection, commands, raise_on_error)
        except NOTHING_DONE:
            raise
        except _LOST as error:
            connection.disconnect()
            raise InDoubt(str(error)) from error


class DriverClient(redis.Redis):
    """
    Runs scripts without what redis-py puts around each command; all else as redis-py does.

    What it gives up because of the server is raised as ServerUnavailable, in one sentence.

    Attributes:
        url: for that sentence
    """

    url = ""

    @property
    def patience(self) -> Patience:
        """How long it tries again."""
        return cast(Patience, cast(Any, self.connection_pool).connection_kwargs["retry"])

    def execute_command(self, *args: Any, **options: Any) -> Any:
        """Send a command; a lost connection is redis-py's to retry, also where the short way met it."""
        if args[0] != "EVALSHA" or self.connection is not None:
            return self._tell(partial(self._execute_slowly, *args, **options))
        pool = cast(Any, self.connection_pool)
        connection, settled = None, False
        try:
            connection = pool.get_settled()
            connection.send_packed_command(_packed(connection, args))
            reply = connection.read_response()
            settled = True
            return reply
        except redis.ResponseError as error:
            if told := for_driver(error, self.url, 0):
                raise told from None
            raise
        except _LOST as error:
            if connection is None or given_up(error) or self._was_silent(connection, error):
                raise for_driver(error, self.url, self.patience.limit_s) or error from None
            connection.disconnect()
        except BaseException:  # an interrupt: the reply may still come
            if connection is not None:
                connection.disconnect()
            raise
        finally:
            if connection is not None:
                pool.release(connection, settled=settled)
        return self._tell(partial(self._execute_slowly, *args, **options))

    def parse_response(self, connection: Any, command_name: str, **options: Any) -> Any:
        """Read a reply; one that may take long by right is waited for as long as was asked."""
        blocks_s = options.pop(_BLOCKS_S, None)
        if blocks_s is None:
            return cast(Any, super()).parse_response(connection, command_name, **options)
        limit_s = connection.socket_timeout
        connection._sock.settimeout(limit_s + blocks_s if blocks_s and limit_s else None)
        try:
            return cast(Any, super()).parse_response(connection, command_name, **options)
        finally:
            if connection._sock is not None:
                connection._sock.settimeout(limit_s)

    def pipeline(self, transaction: bool = True, shard_hint: str | None = None) -> DriverPipeline:
        """As redis-py's, but for what is to be sent once."""
        kind = _Once if _SENT_ONCE.get() else DriverPipeline
        pipeline = kind(self.connection_pool, self.response_callbacks, transaction, shard_hint)
        pipeline.tell = self._tell
        return pipeline

    def _execute_slowly(self, *args: Any, **options: Any) -> Any:
        if args[0] in _BLOCKING and (blocks_s := _blocks_s(args)) is not None:
            options[_BLOCKS_S] = blocks_s
        return cast(Any, super()).execute_command(*args, **options)

    def _was_silent(self, connection: Any, error: BaseException) -> bool:
        """Whether it waited for an answer at least as long as it tries at all."""
        return isinstance(error, redis.TimeoutError) and (connection.socket_timeout or 0) >= self.patience.limit_s

    def _tell(self, talk: Callable[[], Any]) -> Any:
        try:
            return talk()
        except (*_LOST, redis.ResponseError) as error:
            told = for_driver(error, self.url, self.patience.limit_s)
            if told is None:
                raise
            raise told from None


def _blocks_s(command: Sequence[Any]) -> float | None:
    """For how many seconds the command may block, 0 for ever, None where it does not."""
    if command[0] in ("XREAD", "XREADGROUP"):
        names = [each.upper() if isinstance(each, str | bytes) else each for each in command]
        at = next((names.index(name) for name in ("BLOCK", b"BLOCK") if name in names), None)
        return None if at is None else int(command[at + 1]) / 1000
    return float(command[1 if command[0] in ("BLMPOP", "BZMPOP") else -1])


def _packed(connection: Any, command: tuple[Any, ...]) -> Any:
    # Without redis-py's look at each argument: those of scripts are text, bytes and numbers.
    return connection.pack_command(*command) if _pack is None else (_pack(command),)


def _make_ready(connection: Any) -> bool:
    """
    Connect it if it is not, or if it was closed by the server or holds a reply that nobody has read.

    Whether it was connected now.
    """
    if connection._sock is None:
        connection.connect()
        return True
    try:
        usable = not connection.can_read()
    except _LOST:
        usable = False
    if not usable:
        connection.disconnect()
        connection.connect()
    return not usable


def _after_fork() -> None:
    for pool in _pools:
        pool.after_fork()


_pools: WeakSet[DriverPool] = WeakSet()
os.register_at_fork(after_in_child=_after_fork)
