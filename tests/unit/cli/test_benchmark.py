"""The pure parts of `envq bench`: percentiles, sizes, differences, URLs, and what is printed."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from envq.cli.benchmark import jobs
from envq.cli.benchmark.delay import check_delayable, through
from envq.cli.benchmark.figures import Drain, Figures, Latency, Load, Rate, percentile
from envq.cli.benchmark.options import BenchOptions, VariableUse, plan
from envq.cli.benchmark.report import HEADERS, NOT_TOLD, Report, heading, job_line, rows
from envq.cli.benchmark.server_load import Reading, described, load
from envq.errors import ConfigurationError

OPTIONS = BenchOptions(
    url=None,
    namespace=None,
    executors=None,
    worker=True,
    queue=None,
    jobs=None,
    quick=False,
    job_ms=0.0,
    payload=0,
    variable=None,
    rtt_ms=0.0,
    log_level="INFO",
    json=False,
)
FIGURES = Figures(
    round_trip=Latency(50, 0.04, 0.1),
    one_by_one=Rate(100, 0.02),
    bulk=Rate(1000, 0.02),
    latency=Latency(20, 0.8, 1.5),
    drains=[
        Drain(1, Rate(1000, 0.1), Load(31.25, {"hset": 2.0, "evalsha": 0.5, "del": 2.0})),
        Drain(2, Rate(7, 2.0), Load(None, None)),
    ],
)
SETTINGS = {"job_ms": 0.0, "payload": 0, "variable": None, "rtt_ms": 0.0, "worker": True, "queue": None}


def test_a_percentile_is_a_value_that_was_measured() -> None:
    values = [float(number) for number in range(1, 101)]
    random.Random(1).shuffle(values)
    assert [percentile(values, percent) for percent in (50, 99, 100, 1)] == [50.0, 99.0, 100.0, 1.0]
    assert percentile([3.0], 50) == percentile([3.0], 99) == 3.0
    assert percentile([1.0, 2.0], 99) == 2.0


def test_latency_is_in_milliseconds() -> None:
    assert Latency.of([0.001] * 99 + [0.5]) == Latency(100, 1.0, 1.0)


def test_a_rate_in_no_time_is_no_error() -> None:
    assert Rate(5, 0.0).jobs_per_s == 0.0
    assert Rate(5, 2.0).jobs_per_s == 2.5


def test_load_is_what_was_added_per_job_without_the_questions_of_the_measurement() -> None:
    start = Reading(1.5, {"hset": 100, "info": 5, "get": 7})
    end = Reading(1.6, {"hset": 300, "info": 9, "get": 7, "evalsha": 50})
    found = load(start, end, 100)
    assert found.cpu_us == pytest.approx(1000.0)
    assert found.commands == {"hset": 2.0, "evalsha": 0.5}
    assert found.commands_in_all == 2.5


@pytest.mark.parametrize("hidden", [Reading(None, {"get": 1}), Reading(1.0, None)])
def test_what_the_server_does_not_tell_is_none_not_zero(hidden: Reading) -> None:
    found = load(hidden, hidden, 10)
    assert (found.cpu_us is None) == (hidden.cpu_s is None)
    assert (found.commands is None) == (hidden.calls is None)


def test_company_is_told_with_numbers_and_nobody_is_silence() -> None:
    assert described(0, 0.0, workers_run=False) == ""
    assert "3 clients, 1,200 commands a second" in described(3, 1200.0, workers_run=False)
    assert "1 client, the measured workers among them" in described(1, 0.0, workers_run=True)


def test_drains_take_about_the_time_planned_and_no_more_jobs_than_that() -> None:
    sizes = plan(OPTIONS)
    assert sizes.drained(100.0) == round(100 * sizes.seconds)
    assert sizes.drained(1e9) == sizes.jobs
    assert sizes.drained(0.0) == 1
    assert plan(replace(OPTIONS, quick=True)).jobs < sizes.jobs


def test_a_number_of_jobs_that_was_asked_for_is_kept() -> None:
    sizes = plan(replace(OPTIONS, jobs=12, payload=10_000_000))
    assert sizes.drained(0.001) == sizes.jobs == sizes.one_by_one == sizes.samples == 12


def test_large_payloads_do_not_fill_the_server() -> None:
    sizes = plan(replace(OPTIONS, payload=10_000_000))
    assert sizes.jobs * 10_000_000 < 200_000_000
    assert sizes.one_by_one * 10_000_000 < 200_000_000


def test_warming_up_takes_long_neither_for_fast_nor_for_slow_jobs() -> None:
    sizes = plan(OPTIONS)
    assert sizes.warm_up(2, 0.0001) == 400
    assert sizes.warm_up(1, 0.5) == 2
    assert sizes.warm_up(1, 10.0) == 1


@pytest.mark.parametrize(
    ("url", "delayed"),
    [
        ("redis://db.example:6390/3", "redis://127.0.0.1:1234/3"),
        ("redis://me:p%40ss@db.example/0?protocol=3", "redis://me:p%40ss@127.0.0.1:1234/0?protocol=3"),
        ("redis://[::1]:6390", "redis://127.0.0.1:1234"),
        ("unix:///run/redis.sock?db=2", "redis://127.0.0.1:1234?db=2"),
        ("unix://me:secret@/run/redis.sock", "redis://me:secret@127.0.0.1:1234"),
    ],
)
def test_a_delayed_url_keeps_user_database_and_options(url: str, delayed: str) -> None:
    check_delayable(url)
    assert through(url, 1234) == delayed


def test_tls_is_not_delayed() -> None:
    with pytest.raises(ConfigurationError, match="rediss://"):
        check_delayable("rediss://db.example:6390/0")


def test_the_payload_does_not_compress_and_is_the_same_each_time() -> None:
    import zlib

    payload = jobs.incompressible(4096)
    assert payload == jobs.incompressible(4096)
    assert len(zlib.compress(payload)) >= len(payload) == 4096


def test_rows_fit_their_headers_and_show_what_is_not_known() -> None:
    table = rows(FIGURES)
    assert {len(row) for row in table} == {len(HEADERS)}
    assert ("enqueue in bulk", "1000", "50,000 jobs/s", "", "") in table
    assert ("latency on an idle worker", "20", "p50 0.80 ms, p99 1.50 ms", "", "") in table
    assert table[-2:] == [
        ("drain, 1 executor", "1000", "10,000 jobs/s", "31.2 us", "4.5"),
        ("drain, 2 executors", "7", "3.5 jobs/s", NOT_TOLD, NOT_TOLD),
    ]


def test_commands_are_ranked_in_json_and_null_where_unknown() -> None:
    first, second = FIGURES.to_json()["drain"]
    assert list(first["commands"]) == ["del", "hset", "evalsha"]
    assert first["commands_per_job"] == 4.5
    assert second["commands"] is second["commands_per_job"] is second["redis_cpu_us_per_job"] is None
    assert second["executors"] == 2


def test_the_job_is_described_as_it_was_asked_for() -> None:
    assert job_line(SETTINGS) == "each job does nothing; run by a worker of its own"
    asked = {"job_ms": 1.5, "payload": 2048, "variable": VariableUse.RESET, "rtt_ms": 2.0}
    line = job_line(SETTINGS | asked | {"worker": False, "queue": "web"})
    assert line == (
        "each job takes 1.5 ms, reads a variable (reset), is sent 2.0 KiB; run by the workers of queue web; "
        "every round trip of the producer takes 2 ms longer"
    )


def test_the_heading_names_machine_server_and_versions_without_what_is_missing() -> None:
    report = Report(
        machine={"cpu": "Some CPU", "cores": 1, "memory_mib": 2048, "os": "Linux"},
        versions={
            "python": "CPython 3.12.1",
            "envq": "1.0",
            "rq": "3.0",
            "redis_py": "6.1",
            "hiredis": None,
            "server": {"name": "Valkey", "version": "9.1"},
        },
        settings=SETTINGS | {"url": "redis://localhost", "durability": "no persistence"},
        figures=FIGURES,
        warnings=[],
    )
    server, packages, machine, _ = heading(report)
    assert server == "Valkey 9.1 at redis://localhost; no persistence"
    assert packages == "envq 1.0, rq 3.0, redis-py 6.1, CPython 3.12.1"
    assert machine == "Some CPU, 1 core, 2.0 GiB, Linux"
    assert set(report.to_json()) == {"machine", "versions", "settings", "figures", "warnings"}
