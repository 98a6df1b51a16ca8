"""The disturbances of a storm, each a method; what happened is counted."""

from __future__ import annotations

import contextlib
import random
import signal
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import redis
from chaos.storm.declaring import Declaring
from chaos.storm.fleet import WORKERS, Fleet, send
from chaos.storm.plan import Round
from support.proxy import CUT_AFTER, CUT_INSIDE, CUTS, CuttingProxy
from support.servers import Server

from envq.store.scripts import digest

SCRIPTS: Final = [digest(name).encode() for name in ("claim", "finish", "giveback", "release", "beat")]
# What RQ's own code sends, and a few that stand in every pipeline.
COMMANDS: Final = [b"EXEC", b"WATCH", b"lpos", b"LPOS", b"HGETALL", b"SUBSCRIBE", b"BLMOVE"]
COMMITS: Final = [b"EXEC", b"EXEC", b"EXEC", digest("finish").encode(), digest("claim").encode()]
ENQUEUES: Final = [b"EXEC", digest("enqueue").encode(), digest("declare").encode()]
STRUCK_WITHIN_S: Final = 3.0
REDIS_ERRORS: Final = (redis.RedisError, OSError)


@dataclass(frozen=True)
class Proxies:
    """Between the server and those who work with it."""

    workers: CuttingProxy
    driver: CuttingProxy

    def close(self) -> None:
        self.workers.close()
        self.driver.close()


class Weather:
    """Makes it."""

    def __init__(self, server: Server, proxies: Proxies, fleet: Fleet, declaring: Declaring) -> None:
        self.counted: Counter[str] = Counter()
        self._server, self._proxy, self._fleet, self._declaring = server, proxies.workers, fleet, declaring
        self._to_driver = proxies.driver
        self._never = threading.Event()

    def happen(self, planned: Round) -> None:
        """What the plan says for this round."""
        self._never.wait(planned.after_s)
        self._fleet.tend()
        self.counted[planned.weather] += 1
        kind, _, what = planned.weather.partition(" ")
        if kind == "declare":
            self._declaring.declare(what)
        elif kind == "remove":
            self._declaring.remove(what)
        elif planned.weather != "calm":
            self._deeds[planned.weather](self, random.Random(planned.seed))
        self._fleet.tend()

    def clear(self) -> None:
        """Nothing that was asked of the proxy is still to come."""
        self.counted["connections cut"] = self._proxy.cuts
        self.counted["enqueues cut"] = self._to_driver.cuts
        for proxy in (self._proxy, self._to_driver):
            proxy.cut(b"", "", times=0)

    def _kill_executor(self, chance: random.Random) -> None:
        self._kill(chance, registered=True)

    def _kill_scheduler(self, chance: random.Random) -> None:
        self._kill(chance, registered=False)

    def _kill(self, chance: random.Random, *, registered: bool) -> None:
        with contextlib.suppress(*REDIS_ERRORS), self._server.client() as client:
            known = self._fleet.pids_by_redis(client)
            pids = sorted(pid for pid in self._fleet.executors() if (pid in known) is registered)
            if pids:
                self.counted["executors killed" if registered else "schedulers and newborn killed"] += 1
                send(chance.choice(pids), signal.SIGKILL)

    def _kill_supervisor(self, chance: random.Random) -> None:
        self._fleet.kill_supervisor(chance.randrange(WORKERS))

    def _lose_worker(self, chance: random.Random) -> None:
        self._fleet.lose(chance.randrange(WORKERS))

    def _lose_all_at_reply(self, chance: random.Random) -> None:
        """Whoever sent the command is gone when the server has acted, and so is everybody who knew that he sent it."""
        acted, gone = threading.Event(), threading.Event()
        self._proxy.before_cut = lambda: (acted.set(), gone.wait(STRUCK_WITHIN_S))
        self._proxy.cut(chance.choice(COMMITS), CUT_AFTER, times=1)
        if acted.wait(STRUCK_WITHIN_S):
            self.counted["workers lost at a reply"] += 1
            for at in range(WORKERS):
                self._fleet.lose(at)
        gone.set()
        self._proxy.before_cut = lambda: None

    def _pause(self, chance: random.Random) -> None:
        self._pause_one(chance, signal.SIGCONT)

    def _pause_and_kill(self, chance: random.Random) -> None:
        self._pause_one(chance, signal.SIGKILL)

    def _pause_one(self, chance: random.Random, then: signal.Signals) -> None:
        pids = sorted(self._fleet.executors())
        if pids:
            pid = chance.choice(pids)
            send(pid, signal.SIGSTOP)
            self._never.wait(chance.uniform(0.0, 0.4))
            send(pid, then)

    def _freeze(self, chance: random.Random) -> None:
        frozen = self._fleet.freeze(chance.randrange(WORKERS))
        self._never.wait(self._fleet.lease_s + 2.0)
        for pid in reversed(frozen):  # the executors first: they may try to store before their supervisor is awake
            send(pid, signal.SIGCONT)

    def _cut(self, chance: random.Random) -> None:
        self._proxy.cut(chance.choice(SCRIPTS), chance.choice(CUTS), times=chance.randint(1, 3))

    def _lose_reply(self, chance: random.Random) -> None:
        self._proxy.cut(chance.choice([*SCRIPTS, *COMMANDS]), chance.choice([CUT_AFTER, CUT_INSIDE]), times=2)

    def _lose_enqueue(self, chance: random.Random) -> None:
        self._to_driver.cut(chance.choice(ENQUEUES), chance.choice(CUTS), times=chance.randint(1, 4))

    def _cut_all(self, chance: random.Random) -> None:
        self._proxy.cut(b"", chance.choice(CUTS), times=12)

    def _kill_client(self, chance: random.Random) -> None:
        self._tell(lambda client: client.client_kill_filter(_id=chance.choice(client.client_list())["id"]))

    def _kill_clients(self, _: random.Random) -> None:
        self._tell(lambda client: client.execute_command("CLIENT", "KILL", "TYPE", "normal"))

    def _flush_scripts(self, _: random.Random) -> None:
        self._tell(lambda client: client.script_flush())

    def _tell(self, command: Callable[[Any], object]) -> None:
        with contextlib.suppress(*REDIS_ERRORS), self._server.client() as client:
            command(client)

    def _roll(self, chance: random.Random) -> None:
        self._fleet.roll(chance.randrange(WORKERS))

    def _kill_server(self, _: random.Random) -> None:
        self._server.kill()
        self._server.start()

    def _shut_down_server(self, _: random.Random) -> None:
        self._server.stop()
        self._server.start()

    def _hang_server(self, chance: random.Random) -> None:
        self._server.pause()
        self._never.wait(chance.uniform(0.5, 4.0))  # workers give it up after 3 seconds
        self._server.resume()

    _deeds: Final[dict[str, Callable[[Weather, random.Random], None]]] = {
        "kill an executor": _kill_executor,
        "kill a scheduler": _kill_scheduler,
        "kill a supervisor": _kill_supervisor,
        "lose a worker": _lose_worker,
        "lose all at a reply": _lose_all_at_reply,
        "hang the server": _hang_server,
        "pause a process": _pause,
        "pause and kill": _pause_and_kill,
        "freeze a worker": _freeze,
        "cut a script": _cut,
        "lose a reply": _lose_reply,
        "lose an enqueue": _lose_enqueue,
        "cut all": _cut_all,
        "kill a client": _kill_client,
        "kill all clients": _kill_clients,
        "flush scripts": _flush_scripts,
        "roll": _roll,
        "kill the server": _kill_server,
        "shut the server down": _shut_down_server,
    }
