"""
A storm: jobs of all kinds, while workers are killed and frozen, connections cut, replies lost, the server restarted.

    python -m chaos.storm.run --seed 1 --jobs 20000

The seed decides which jobs are enqueued and what happens in which round; at which moment of a job it strikes is up to
the machine.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from chaos.storm import dust
from chaos.storm.declaring import Declaring
from chaos.storm.driver import Driver
from chaos.storm.fleet import LEASE_S, Fleet
from chaos.storm.ledger import Effects
from chaos.storm.patience import AWAY
from chaos.storm.plan import Plan, make_plan
from chaos.storm.report import figures, publish, table
from chaos.storm.verdict import Verdict
from chaos.storm.weather import Proxies, Weather
from support.proxy import CuttingProxy
from support.servers import BINARIES, Server, binary_version

import envq
from envq.driver.client import driver_scope, swap_default

DURABLE: Final = ("--appendonly", "yes", "--appendfsync", "always")
BACKLOG: Final = 400  # jobs; more wait for the storm, not for workers
CATCH_UP_S: Final = 4.0  # a round takes no longer, whatever waits
SETTLE_S: Final = 180.0


@dataclass
class Outcome:
    """Of one storm."""

    faults: list[str]
    figures: dict[str, Any]


def run(plan: Plan, binary: Path, directory: Path, *, lease_s: float = LEASE_S, tell: bool = False) -> Outcome:
    """Let the plan happen; the processes it starts are gone when this returns."""
    effects = directory / "effects"
    effects.touch()
    server = Server(binary, *DURABLE).start()
    proxies = Proxies(CuttingProxy(server.port), CuttingProxy(server.port))
    driver_scope.close()
    before = swap_default(None)
    fleet = Fleet(proxies.workers.url, directory, effects, lease_s)
    try:
        return _Storm(plan, server, proxies, fleet, effects, tell=tell).run()
    finally:
        fleet.end()
        driver_scope.close()
        swap_default(before)
        proxies.close()
        server.remove()


class _Storm:
    def __init__(
        self, plan: Plan, server: Server, proxies: Proxies, fleet: Fleet, effects: Path, *, tell: bool
    ) -> None:
        self._plan, self._server, self._fleet, self._effects, self._tell = plan, server, fleet, effects, tell
        self._client = envq.connect(proxies.driver.url)
        self._declaring = Declaring()
        self._driver = Driver(self._client, server.client(), self._declaring)
        self._weather = Weather(server, proxies, fleet, self._declaring)
        self._began = time.monotonic()

    def run(self) -> Outcome:
        self._declaring.declare_all()
        self._fleet.start()
        self._fleet.wait_ready()
        for at, planned in enumerate(self._plan.rounds):
            self._say(f"round {at + 1} of {len(self._plan.rounds)}: {len(planned.orders)} jobs, {planned.weather}")
            self._round(planned)
        self._weather.clear()
        self._say("the storm is over")
        stormed_s = time.monotonic() - self._began
        return self._judge(stormed_s)

    def _round(self, planned: Any) -> None:
        """Enqueue while it happens."""
        caught: list[BaseException] = []

        def enqueue() -> None:
            try:
                self._driver.enqueue(planned.orders)
            except BaseException as error:  # noqa: BLE001 - raised again in the thread of the storm
                caught.append(error)

        thread = threading.Thread(target=enqueue)
        thread.start()
        self._weather.happen(planned)
        thread.join()
        for error in caught:
            raise error
        deadline = time.monotonic() + CATCH_UP_S
        while time.monotonic() < deadline and self._backlog() > BACKLOG:
            threading.Event().wait(0.02)

    def _backlog(self) -> int:
        try:
            return dust.waiting(self._client.connection)
        except AWAY:
            return BACKLOG + 1

    def _judge(self, stormed_s: float) -> Outcome:
        connection = self._client.connection
        ids = [job.job_id for job in self._driver.done.values()]
        stuck = dust.settled(self._client, ids, self._fleet, SETTLE_S)
        settled_s = time.monotonic() - self._began - stormed_s
        self._say(f"the dust has settled: {len(stuck)} stuck")
        faults = [f"stuck: {each}" for each in stuck]
        self._fleet.stop()
        faults += self._fleet.faults
        orphans = self._fleet.orphans()
        faults += [f"process {pid} is left behind" for pid in orphans]
        faults += [f"left behind: {each}" for each in dust.of_executors(self._client)]
        verdict = Verdict(self._driver.done, Effects(self._effects), self._declaring, connection)
        faults += verdict.faults
        if len(self._driver.done) != len(self._plan.orders):
            faults.append(f"{len(self._plan.orders) - len(self._driver.done)} jobs were never enqueued")
        numbers = figures(self._plan, self._weather.counted, verdict.counted)
        numbers |= {
            "bulk enqueues repeated": self._driver.repeated,
            "stuck": len(stuck),
            "orphans": len(orphans),
            "faults": len(faults),
            "seconds of storm": round(stormed_s),
            "seconds until the dust had settled": round(settled_s),
        }
        return Outcome(faults, numbers)

    def _say(self, text: str) -> None:
        if self._tell:
            print(f"{time.monotonic() - self._began:7.1f} s  {text}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument("--restarts", type=int, default=3)
    parser.add_argument("--ghosts", type=int, default=4)
    parser.add_argument("--server", choices=sorted(BINARIES), default="valkey")
    parser.add_argument("--json", type=Path, help="write the figures there")
    parser.add_argument("--publish", action="store_true", help="write them into tests/chaos/results and the docs")
    parser.add_argument("--directory", type=Path, help="where workers log and effects are noted; kept")
    given = parser.parse_args()
    binary = BINARIES[given.server]()
    if binary is None:
        sys.exit(f"{given.server}: this server is not installed here")
    plan = make_plan(given.seed, given.jobs, restarts=given.restarts, ghosts=given.ghosts)
    directory = given.directory or Path(tempfile.mkdtemp(prefix="envq-storm-"))
    directory.mkdir(parents=True, exist_ok=True)
    print(f"seed {given.seed}, {len(plan.orders)} jobs, {len(plan.rounds)} rounds; logs are in {directory}", flush=True)
    outcome = run(plan, binary, directory, tell=True)
    numbers = {"server": binary_version(binary).partition(" sha")[0].replace(" server v=", " ")} | outcome.figures
    print(table(numbers))
    for fault in outcome.faults[:50]:
        print(f"FAULT {fault}")
    if given.json:
        given.json.write_text(json.dumps(numbers, indent=2) + "\n")
    if given.publish:
        publish(numbers)
    sys.exit(1 if outcome.faults else 0)


if __name__ == "__main__":
    main()
