"""Atari Pong in every worker: made once, played by many jobs, put back to its start between them.

A driver like yours. `envq demo` runs it; by hand, with a Redis beside it:

    envq worker --workers 2 --namespace demo &
    python pong.py redis://localhost:6379/0
"""

# pyright: basic, reportMissingImports=false
# (what it imports besides envq need not be installed where types are checked, and has few)

from __future__ import annotations

import argparse
import hashlib
import json
import os
import time
from collections.abc import Callable
from typing import Any

import ale_py
import gymnasium
import numpy as np
import redis

import envq

parser = argparse.ArgumentParser()
parser.add_argument("url")
parser.add_argument("--executors", type=int, default=2)
parser.add_argument("--steps", type=int, default=300, help="jobs of a single step each")
parser.add_argument("--rallies", type=int, default=6, help="jobs of 120 steps each")
parser.add_argument("--pause", type=float, default=0.0, help="seconds between two frames, for people to watch")
parser.add_argument("--without-reset", action="store_true", help="to see what goes wrong without it")
options = parser.parse_args()

URL: str = options.url
UP, DOWN = 2, 3
BACKGROUND = np.array([144, 72, 17])
PADDLE = np.array([92, 186, 92])
BALL = np.array([236, 236, 236])


# ---- our own book-keeping in Redis, so that nobody has to take envq's word for anything


def note(what: str, **facts: object) -> None:
    """Write down what happened, and in which process."""
    entry: dict[str, Any] = {"what": what, "pid": os.getpid(), "parent": os.getppid(), "at": time.time()}
    with redis.Redis.from_url(URL) as book:
        book.rpush("demo:pong", json.dumps(entry | facts))


def look(pong: Any) -> str:
    """What can be told of a game by looking at it; two fresh games look the same."""
    try:
        ale = pong.unwrapped.ale
        picture = hashlib.sha256(ale.getScreenRGB().tobytes() + ale.getRAM().tobytes()).hexdigest()[:8]
        attributes = len(vars(pong)) + len(vars(pong.env)) + len(vars(pong.unwrapped))
        return f"{picture} at frame {ale.getEpisodeFrameNumber()}, {pong.action_space}, {attributes} attributes"
    except AttributeError as error:
        return f"broken: {error}"


# ---- the environment variable: how a game is made, and how it is put back


def new_pong() -> Any:
    gymnasium.register_envs(ale_py)  # "Pong-v0" comes from ale-py, which brings the ROMs too
    pong = gymnasium.make("Pong-v0")
    pong.reset()
    return pong


def make_pong() -> Any:
    pong = new_pong()
    note("build", found=look(pong))
    return pong


def reset_pong(pong: Any) -> Any:
    pong.reset()
    return pong if look(pong) == FRESH else envq.REBUILD  # somebody did more to it than play


def leave_pong(pong: Any) -> Any:
    return pong


# ---- the jobs


@envq.task
def step() -> None:
    """The idea's original example: one step in a game that is always there."""
    pong = envq.env.pong
    note("job", found=look(pong))
    pong.step(pong.action_space.sample())
    note("steps", count=1)


@envq.task
def rally(steps: int, pause: float) -> None:
    """A longer game, with every picture that shows the ball sent to whoever watches."""
    pong = envq.env.pong
    note("job", found=look(pong))
    screen = pong.unwrapped.ale.getScreenRGB()
    with redis.Redis.from_url(URL) as gallery:
        for _ in range(steps):
            screen, *_ = pong.step(follow_the_ball(screen))
            if (field(screen) == BALL).all(axis=-1).any():
                gallery.hset("demo:pong:screens", str(os.getpid()), thumbnail(screen))
            time.sleep(pause)
    note("steps", count=steps)


@envq.task
def glance() -> int:
    """Look at the game and do nothing else; tells in which process."""
    note("job", found=look(envq.env.pong))
    return os.getpid()


@envq.task
def sabotage(deed: Callable[[Any], None], needs_rebuild: bool) -> None:
    """Break the game on purpose, then raise."""
    note("sabotage", deed=deed.__name__, needs_rebuild=needs_rebuild)
    deed(envq.env.pong)
    raise Sabotage(deed.__name__)


class Sabotage(Exception):
    """Raised by jobs that broke something on purpose."""


def walk_away(pong: Any) -> None:
    for _ in range(100):
        pong.step(UP)


def cheat(pong: Any) -> None:
    pong.step = lambda action: "I won"


def tie_hands(pong: Any) -> None:
    pong.action_space = gymnasium.spaces.Discrete(1)


def unplug(pong: Any) -> None:
    del pong.unwrapped.ale


# ---- how the computer sees the game


def field(screen: Any) -> Any:
    """The part of the screen between the two walls."""
    return screen[34:194]


def follow_the_ball(screen: Any) -> int:
    """Up or down, whichever brings our paddle to where the ball is."""
    ball = np.argwhere((field(screen) == BALL).all(axis=-1))
    paddle = np.argwhere((field(screen)[:, 130:] == PADDLE).all(axis=-1))
    if not len(ball) or not len(paddle):
        return int(np.random.choice([UP, DOWN]))
    return UP if ball[:, 0].mean() < paddle[:, 0].mean() else DOWN


def thumbnail(screen: Any) -> bytes:
    """32 x 32 colours: of each 5 x 5 pixels the one that differs most from the background, so that the ball stays."""
    blocks = field(screen).reshape(32, 5, 32, 5, 3).swapaxes(1, 2).reshape(32, 32, 25, 3)
    contrast = np.abs(blocks.astype(int) - BACKGROUND).sum(axis=-1)
    chosen = contrast.argmax(axis=-1)[..., None, None]
    return np.take_along_axis(blocks, chosen, axis=2).tobytes()


# ---- the driver


def finish(jobs: list[Any]) -> list[Any]:
    """Wait for jobs that should succeed; count those that did not."""
    outcomes = envq.get(jobs, timeout=120, return_exceptions=True)
    note("finished", jobs=len(jobs), failed=sum(isinstance(each, Exception) for each in outcomes))
    return outcomes


def break_it_on_purpose() -> None:
    deeds = {walk_away: False, cheat: True, tie_hands: True, unplug: True}
    jobs: list[Any] = []
    looks: list[Any] = []
    for deed, needs_rebuild in deeds.items():
        jobs.append(sabotage.enqueue(deed, needs_rebuild))
        looks += [glance.enqueue() for _ in range(4)]
    outcomes = envq.get(jobs, timeout=60, return_exceptions=True)
    note("sabotaged", jobs=len(jobs), raised=sum("Sabotage" in str(each) for each in outcomes))
    finish(looks)


def look_everywhere() -> None:
    """Send jobs until each executor has had one."""
    seen: set[int] = set()
    deadline = time.monotonic() + 60
    while len(seen) < options.executors and time.monotonic() < deadline:
        seen |= {each for each in finish([glance.enqueue() for _ in range(10)]) if isinstance(each, int)}


if __name__ == "__main__":
    FRESH = look(new_pong())
    envq.connect(URL, namespace="demo")
    envq.env.pong = envq.EnvironmentVariable(make_pong, leave_pong if options.without_reset else reset_pong)
    envq.wait_ready("pong", workers=options.executors, timeout=60)

    finish([step.enqueue() for _ in range(options.steps)])
    finish([rally.enqueue(120, options.pause) for _ in range(options.rallies)])
    break_it_on_purpose()
    look_everywhere()
