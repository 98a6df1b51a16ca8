"""What `envq worker` and a driver say of a server's settings at their start."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest
from support.processes import clean_environment
from support.servers import Server
from support.waiting import eventually
from support.workers import WorkerProcess

import envq
from envq.driver.client import Client

OwnServer = Callable[..., Server]
Worker = Callable[..., WorkerProcess]


def envq_command(url: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "envq", *arguments]
    environment = clean_environment({"ENVQ_URL": url})
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl"])
def test_a_policy_that_throws_jobs_away_is_warned_about(policy: str, own_server: OwnServer) -> None:
    url = own_server("--maxmemory-policy", policy).url()
    done = envq_command(url, "worker", "--burst", "--no-scheduler")
    assert f"WARNING envq.worker: maxmemory-policy is {policy}" in done.stderr
    assert "set it to noeviction" in done.stderr
    assert f"warning: maxmemory-policy is {policy}" in envq_command(url, "info").stdout


def test_what_a_restart_loses_is_said_and_noeviction_is_not_warned_about(own_server: OwnServer) -> None:
    forgetful = envq_command(own_server().url(), "worker", "--burst", "--no-scheduler").stderr
    assert "no persistence: a restart of Redis loses all jobs" in forgetful
    assert "maxmemory-policy" not in forgetful
    lasting = own_server("--appendonly", "yes", "--appendfsync", "always")
    assert "append-only file, fsync always" in envq_command(lasting.url(), "worker", "--burst", "--no-scheduler").stderr


def test_a_node_of_a_cluster_is_refused(own_server: OwnServer) -> None:
    url = own_server("--cluster-enabled", "yes", "--databases", "1").url()
    done = envq_command(url, "worker")
    assert (done.returncode, done.stderr.count("\n")) == (3, 1)
    assert "is one of a cluster, which envq does not work with" in done.stderr
    with pytest.raises(envq.ServerUnavailable, match="cluster"):
        Client(url).check()


def test_a_replica_is_refused_and_waited_for_on_request(own_server: OwnServer, worker: Worker) -> None:
    primary = own_server()
    replica = own_server("--replicaof", "127.0.0.1", str(primary.port))
    done = envq_command(replica.url(), "worker")
    assert (done.returncode, done.stderr.count("\n")) == (3, 1)
    assert "is a replica, which takes no jobs" in done.stderr
    with pytest.raises(envq.ServerUnavailable, match="is a replica"):
        Client(replica.url()).check()
    waiting = worker("--wait-for-server", "60", url=replica.url(), wait=False)
    eventually(lambda: "waiting for Redis" in waiting.output, timeout=30)
    with replica.client() as admin:
        admin.execute_command("REPLICAOF", "NO", "ONE")
    waiting.wait_ready()
