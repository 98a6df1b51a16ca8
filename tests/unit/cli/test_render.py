"""What a human sees, made from records alone."""

from __future__ import annotations

import json

from envq.cli.readiness import readiness
from envq.cli.render import (
    Banner,
    banner,
    brief,
    declaration_json,
    declaration_lines,
    declaration_outcome,
    duration,
    plain_table,
    size,
)
from envq.store.declarations import Snapshot
from envq.store.executor_store import ExecutorView
from envq.store.records import Declaration, ExecutorInfo, VariableState

MODEL = Declaration(
    "model", 2, "d" * 64, size=2048, queues=["gpu"], declared_by="web-1 pid 7", declared_at="2026-11-30"
)


def executor(
    name: str, *variables: VariableState, queues: tuple[str, ...] = ("gpu",), generation: str = "5:a"
) -> ExecutorView:
    info = ExecutorInfo(name, "gpu.1", "host", 10, 1, "3.11", "0.1.0", list(queues), "2026-11-30")
    return ExecutorView(info, "idle", generation, {each.name: each for each in variables})


def held(state: str, *, version: int = 2, epoch: int = 0, error: str = "") -> VariableState:
    return VariableState("model", version, "d" * 64, state, epoch=epoch, error=error)


def summary(*executors: ExecutorView, declaration: Declaration = MODEL) -> str:
    return readiness("model", Snapshot("5:a", {"model": declaration}), executors).summary


def test_states_of_all_executors_are_counted_in_one_summary() -> None:
    executors = [
        executor("a", held("ready")),
        executor("b", held("failed")),
        executor("c", held("building", version=1)),
    ]
    assert summary(*executors) == "ready 1/3, building 1, failed 1"


def test_executors_of_other_queues_do_not_count() -> None:
    assert summary(executor("a", held("ready")), executor("b", queues=("web",))) == "ready 1/1"
    assert summary(executor("b", queues=("web",))) == "no executor builds it"


def test_an_older_version_or_epoch_is_not_ready() -> None:
    assert summary(executor("a", held("ready", version=1))) == "ready 0/1, outdated 1"
    assert summary(executor("a", held("ready", epoch=3))) == "ready 0/1, outdated 1"


def test_the_failure_of_an_older_version_says_nothing_about_the_new_one() -> None:
    assert summary(executor("a", held("failed", version=1))) == "ready 0/1, pending 1"


def test_a_failed_update_counts_once_the_executor_has_seen_the_declaration() -> None:
    served = held("update failed", version=1)
    assert summary(executor("a", served)) == "ready 0/1, update failed 1"
    assert summary(executor("a", served, generation="4:a")) == "ready 0/1, outdated 1"


def test_a_lazy_variable_has_nothing_to_build_before_it_is_read() -> None:
    lazy = Declaration("model", 2, "d" * 64, build="lazy")
    state = readiness("model", Snapshot("5:a", {"model": lazy}), [executor("a", held("declared"))])
    assert state.settled == 1
    assert state.ready == 0


def test_show_ends_with_the_traceback_of_each_failure() -> None:
    error = "Traceback (most recent call last):\n  File x\nImportError: No module named 'torch'"
    state = readiness("model", Snapshot("5:a", {"model": MODEL}), [executor("a.1", held("failed", error=error))])
    text = "\n".join(declaration_lines(MODEL, state))
    assert "a.1: failed" in text
    assert text.rstrip().endswith("ImportError: No module named 'torch'")


def test_json_of_a_declaration_holds_the_header_and_each_executor() -> None:
    state = readiness("model", Snapshot("5:a", {"model": MODEL}), [executor("a.1", held("ready"))])
    shown = json.loads(json.dumps(declaration_json(MODEL, state)))
    assert shown["name"] == "model"
    assert shown["summary"] == "ready 1/1"
    assert [(each["executor"], each["state"]) for each in shown["executors"]] == [("a.1", "ready")]


def test_declare_says_what_it_brought_about() -> None:
    new = Declaration("model", 3, "e" * 64)
    assert declaration_outcome(None, MODEL, None) == "model v2 declared"
    assert declaration_outcome(MODEL, MODEL, None) == "model v2 is declared already, nothing changed"
    assert declaration_outcome(MODEL, new, None) == "model v3 replaces v2"
    assert declaration_outcome(new, new, 2) == "model v3 stays: a lower version does not replace it"


def test_banner_names_version_server_queues_and_variables() -> None:
    facts = Banner(
        "1.2",
        "web",
        "Valkey 9.1",
        "append-only file",
        "redis://h/0",
        "b",
        ("hi", "lo"),
        2,
        False,
        True,
        "jobs",
        [MODEL],
    )
    text = "\n".join(banner(facts))
    for part in (
        "envq 1.2",
        "web",
        "2 executors",
        "scheduler off",
        "burst",
        "Valkey 9.1",
        "append-only file",
        "hi, lo",
        "only what is signed is run: jobs",
        "model v2",
    ):
        assert part in text


def test_plain_tables_are_aligned_and_nothing_is_cut() -> None:
    long = "x" * 300
    assert plain_table(("A", "B"), [(long, "1")]).splitlines() == ["A" + " " * 299 + "  B", long + "  1"]


def test_sizes_are_for_people() -> None:
    assert [size(5), size(1536), size(3 * 1024 * 1024)] == ["5 B", "1.5 KiB", "3.0 MiB"]


def test_times_are_for_people() -> None:
    assert [duration(s) for s in (4.2e-05, 0.0421, 1.3, 75)] == ["0.04 ms", "42 ms", "1.3 s", "75.0 s"]


def test_an_error_in_a_table_is_one_short_line() -> None:
    traceback = "Traceback (most recent call last):\n  File x\n    make()\nValueError: no model\nand more\n"
    assert brief(traceback) == "ValueError: no model"
    assert (
        brief(f"{traceback}\nDuring handling, another:\n\n{traceback.replace('no', 'bad')}") == "ValueError: bad model"
    )
    assert brief("quarantined\nbecause") == "quarantined"
    assert brief("") == ""
    assert brief("x" * 70) == "x" * 59 + "…"
