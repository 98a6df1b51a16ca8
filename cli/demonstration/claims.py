"""Pure: what the demo promises, each with what was expected and what was counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from envq.cli.demonstration.ledger import Ledger

LEAST_STEPS = 300
LEAST_BUILD_S = 1.0
LEAST_SAVING = 10  # times faster than making the value for every job


@dataclass(frozen=True)
class Claim:
    """One promise: kept or not, and by which count."""

    promise: str
    held: bool
    counted: str
    expected: str


@dataclass(frozen=True)
class Backstage:
    """What the demo saw of the processes that it started itself."""

    executors: int  # how many there should be
    driver_codes: Mapping[str, int]  # exit code of each driver
    worker_ran: bool  # one and the same worker process from the first job to the last
    worker_pid: int
    files: tuple[str, ...]  # what lay in the worker's folder


def all_claims(pong: Ledger, digits: Ledger, backstage: Backstage) -> list[Claim]:
    """Every promise of the demo, in the order in which it is shown."""
    first, second = digits.version(1), digits.version(2)
    return [
        _driver_ended("pong", backstage),
        _game_built_once(pong, backstage.executors),
        _several_hundred_steps(pong, backstage.executors),
        *_clean(pong, "game", backstage.executors),
        _driver_ended("digits", backstage),
        _slow_and_not_picklable(digits),
        _classifier_built_once(digits.before_sabotage(), backstage.executors),
        _same_answers(digits, backstage.executors),
        *_clean(digits, "classifier", backstage.executors, first),
        _time_saved(digits, backstage.executors),
        _taken_over(first, second, backstage.executors),
        _nobody_got_the_old_one(digits),
        _no_other_failure(pong, digits),
        _same_processes(pong, digits, backstage),
        _no_code_in_the_folder(backstage),
    ]


def _driver_ended(name: str, backstage: Backstage) -> Claim:
    code = backstage.driver_codes.get(name)
    return Claim(f"the driver {name}.py ran to its end", code == 0, f"exit code {code}", "exit code 0")


def _game_built_once(pong: Ledger, executors: int) -> Claim:
    builds = pong.before_sabotage().builds
    return Claim(
        "Pong-v0 was made once in each process: the driver and the executors",
        len(pong.executors) == executors
        and set(builds) > set(pong.executors)
        and len(builds) == executors + 1
        and set(builds.values()) == {1},
        f"made {_by_pid(builds)}; {_count(len(pong.executors), 'executor')} and the driver",
        f"{executors + 1} processes, each once",
    )


def _several_hundred_steps(pong: Ledger, executors: int) -> Claim:
    steps = pong.steps
    return Claim(
        "several hundred steps were played by jobs on all executors",
        sum(steps.values()) >= LEAST_STEPS and len(steps) == executors,
        f"{sum(steps.values()):,} steps: {_by_pid(steps)}",
        f"at least {LEAST_STEPS} steps in {executors} processes",
    )


def _clean(ledger: Ledger, name: str, executors: int, own: Ledger | None = None) -> list[Claim]:
    """Three promises about resets; ``own`` holds the builds to count where there is more than one version."""
    return [
        _every_job_found_it_clean(ledger, name),
        _sabotage_was_undone(ledger, name),
        _built_anew_only_where_forced(ledger, own or ledger, name, executors),
    ]


def _every_job_found_it_clean(ledger: Ledger, name: str) -> Claim:
    jobs, dirty = len(ledger.of("job")), ledger.dirty
    example = f", such as: {dirty[0].facts['found']}" if dirty else ""
    return Claim(
        f"every job found the {name} as it was made",
        jobs > 0 and not dirty,
        f"{len(dirty):,} of {jobs:,} jobs found it dirty{example}",
        "0 dirty",
    )


def _sabotage_was_undone(ledger: Ledger, name: str) -> Claim:
    wanted, raised = ledger.fact("sabotaged", "jobs"), ledger.fact("sabotaged", "raised")
    done = len(ledger.of("sabotage"))
    unclean = {id(entry) for entry in ledger.dirty}
    clean = sum(entry is not None and id(entry) not in unclean for entry in ledger.first_after_sabotage)
    return Claim(
        f"also right after jobs that broke the {name} on purpose and raised",
        0 < wanted == done == raised == clean,
        f"{done} broke it, {raised} raised, the next job found it clean {clean} times",
        f"{wanted} times each",
    )


def _built_anew_only_where_forced(ledger: Ledger, own: Ledger, name: str, executors: int) -> Claim:
    forced = ledger.forced
    expected = {pid: 1 + forced[pid] for pid in ledger.executors}
    builds = Counter({pid: own.builds[pid] for pid in ledger.executors})
    return Claim(
        f"the {name} was made anew only where nothing else could help",
        len(expected) == executors and forced.total() > 0 and builds == expected,
        f"made {_by_pid(builds)}, of which forced {forced.total()}",
        f"made {_by_pid(expected)}",
    )


def _slow_and_not_picklable(digits: Ledger) -> Claim:
    seconds, refusal = digits.fact("direct", "seconds", 0.0), digits.fact("direct", "refusal", "")
    return Claim(
        "the classifier takes over a second to make, and cannot be pickled",
        seconds > LEAST_BUILD_S and bool(refusal),
        f"{seconds:.1f} s; pickle says: {refusal or 'nothing'}",
        f"more than {LEAST_BUILD_S:g} s, and a refusal",
    )


def _classifier_built_once(digits: Ledger, executors: int) -> Claim:
    builds = digits.builds
    return Claim(
        "it was made once in each executor",
        len(builds) == executors and set(builds.values()) == {1} and sorted(builds) == digits.executors,
        f"made {_by_pid(builds)}",
        f"{executors} processes, each once",
    )


def _same_answers(digits: Ledger, executors: int) -> Claim:
    count, same = digits.fact("predictions", "count"), digits.fact("predictions", "same")
    queue, direct = digits.fact("predictions", "right_by_queue"), digits.fact("predictions", "right_directly")
    jobs = Counter(entry.pid for entry in digits.of("job") if entry.facts["phase"] == "predictions")
    return Claim(
        "predictions on held-out digits are as good as direct ones",
        0 < count == same == jobs.total() and queue == direct and len(jobs) == executors,
        f"{same:,} of {count:,} the same; right: {percent(queue, count)} by queue ({_by_pid(jobs)}), "
        f"{percent(direct, count)} directly",
        f"all of {count:,} the same, by {executors} executors",
    )


def _time_saved(digits: Ledger, executors: int) -> Claim:
    each, once = seconds_per_job_and_once(digits, executors)
    return Claim(
        "making it once saves the time of making it for every job",
        0 < once * LEAST_SAVING < each,
        f"{duration(once)} with its making, not {duration(each)}: {each / once if once else 0:,.0f} times faster",
        f"at least {LEAST_SAVING} times faster",
    )


def seconds_per_job_and_once(digits: Ledger, executors: int) -> tuple[float, float]:
    """All predictions, on as many executors: if each job made the classifier, and as it was, with the making."""
    built, count = digits.fact("direct", "seconds", 0.0), digits.fact("predictions", "count")
    took = digits.fact("predictions", "seconds", 0.0)
    return took + built * count / executors, took + digits.fact("ready", "seconds", 0.0)


def _taken_over(first: Ledger, second: Ledger, executors: int) -> Claim:
    builds = second.builds
    return Claim(
        "a second version was taken over by the same processes",
        len(second.executors) == executors
        and first.executors == second.executors == sorted(builds)
        and set(builds.values()) == {1},
        f"version 1 in {_pids(first.executors)}, version 2 in {_pids(second.executors)}, made {_by_pid(builds)}",
        f"the same {executors} processes, each making it once",
    )


def _nobody_got_the_old_one(digits: Ledger) -> Claim:
    versions = {
        phase: Counter(entry.facts["version"] for entry in digits.of("job") if entry.facts["phase"] == phase)
        for phase in ("before", "after")
    }
    return Claim(
        "jobs enqueued once it was declared got the new version, every one",
        versions["before"][1] > 0 and versions["after"][2] > 0 and set(versions["after"]) == {2},
        f"enqueued before: {_by_version(versions['before'])}; after: {_by_version(versions['after'])}",
        "version 1 before, and only version 2 after",
    )


def _no_other_failure(pong: Ledger, digits: Ledger) -> Claim:
    jobs = pong.total("finished", "jobs") + digits.total("finished", "jobs")
    failed = pong.total("finished", "failed") + digits.total("finished", "failed")
    return Claim(
        "no job failed but those that meant to",
        jobs > 0 and failed == 0,
        f"{failed:,} of {jobs:,} jobs failed",
        "0 failed",
    )


def _same_processes(pong: Ledger, digits: Ledger, backstage: Backstage) -> Claim:
    seen = sorted({*pong.executors, *digits.executors})
    above = pong.parents | digits.parents
    return Claim(
        "nothing was restarted: the same executors, below the same worker, to the end",
        backstage.worker_ran and len(seen) == backstage.executors and above == {backstage.worker_pid},
        f"all jobs ran in {_pids(seen)}, below {_pids(sorted(above))}; "
        f"worker {backstage.worker_pid} {'still runs' if backstage.worker_ran else 'has ended'}",
        f"{backstage.executors} processes below worker {backstage.worker_pid}",
    )


def _no_code_in_the_folder(backstage: Backstage) -> Claim:
    listed = f": {', '.join(backstage.files[:3])}" if backstage.files else ""
    return Claim(
        "the worker's folder holds none of this code",
        not backstage.files,
        f"{_count(len(backstage.files), 'file')} in it{listed}",
        "an empty folder",
    )


def _by_pid(counted: Mapping[int, int]) -> str:
    return ", ".join(f"{count:,} in {pid}" for pid, count in sorted(counted.items())) or "nowhere"


def _by_version(counted: Mapping[int, int]) -> str:
    return " and ".join(f"{count:,} got {number}" for number, count in sorted(counted.items())) or "none"


def _pids(pids: list[int]) -> str:
    return " and ".join(str(pid) for pid in pids) or "none"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def percent(part: float, whole: float) -> str:
    """``96.4 %``."""
    return f"{100 * part / whole:.1f} %" if whole else "nothing"


def duration(seconds: float) -> str:
    """For people: ``4.2 s``, ``17 min``."""
    return f"{seconds:.1f} s" if seconds < 100 else f"{seconds / 60:.0f} min"
