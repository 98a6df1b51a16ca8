"""docker/ is built and run for real: `docker/check.sh`, on whichever engine there is."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
from support.servers import free_port

ROOT = Path(__file__).parents[2]
CHECK = ROOT / "docker" / "check.sh"
WITHOUT_DOCKER = Path(__file__).with_name("without_docker.sh")
TOOLS = ("podman", "runc", "mmdebstrap", "unshare")


def docker_works() -> bool:
    """A Docker engine that answers, with its compose command."""
    return all(
        shutil.which("docker") and subprocess.run(["docker", *words], capture_output=True, check=False).returncode == 0
        for words in (["info"], ["compose", "version"])
    )


def podman_works() -> bool:
    """Podman without a registry: its tools are here or may be installed, and root may do what they do."""
    may_install = "CI" in os.environ and shutil.which("apt-get") is not None
    return (may_install or all(map(shutil.which, TOOLS))) and os.geteuid() == 0 and namespaces_work()


def namespaces_work() -> bool:
    """In many containers even root may not make any."""
    probe = ["unshare", "--net", "--pid", "--fork", "--mount-proc", "true"]
    return (
        shutil.which("unshare") is not None and subprocess.run(probe, capture_output=True, check=False).returncode == 0
    )


@pytest.mark.timeout(900)
def test_the_image_and_the_compose_file_do_what_they_say() -> None:
    """Build, compose config, up, jobs over HTTP, healthy, no rights, read-only, SIGTERM with code 0."""
    if docker_works():
        run(CHECK, {"WEB_PORT": str(free_port())})
    elif podman_works():
        run(WITHOUT_DOCKER, {})
    else:
        pytest.skip(f"containers: no Docker engine answers, and we are not a root that may use {', '.join(TOOLS)}")


def run(script: Path, extra: Mapping[str, str]) -> None:
    done = subprocess.run(
        ["bash", script],
        cwd=ROOT,
        env={**os.environ, **extra},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
