"""What a package asks for decides with what it can be installed."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import requires
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_any_redis_py_that_rq_takes_will_do() -> None:
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    [ours] = [each for each in wanted if each.startswith("redis")]
    [of_rq] = [each for each in requires("rq") or [] if re.match(r"redis\b", each)]
    assert re.sub(r"\[\w+\]", "", ours) in of_rq.replace(" ", "")
    assert "<" not in ours
    assert "=" not in ours.replace(">=", "")
