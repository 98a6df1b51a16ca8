"""The contract of variables: real servers, real `envq worker` processes, this process as the driver."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from support.deployment import Deployment
from support.diary import Diary
from support.gate import Gate
from support.workers import EVERY_WORKER

import envq
from envq.driver.client import Client, driver_scope, swap_default
from envq.environment import env
from envq.store.records import VariableState
from envq.variables import EnvironmentVariable

# Under --isolate each job works on a snapshot. These tell of what is done to the value itself: reset, checked, rebuilt,
# torn down because of a job, or read by jobs of one process. That no job sees another's changes is in all the others.
NOT_ISOLATED = {
    "test_it_is_built_once_and_all_jobs_share_it",
    "test_the_first_job_sees_the_value_as_the_initializer_made_it",
    "test_without_a_reinitializer_the_initializer_runs_again",
    "test_the_identity_keeps_what_jobs_change",
    "test_only_used_variables_are_reset",
    "test_a_task_left_on_the_event_loop_is_cancelled_first",
    "test_a_thread_left_behind_forces_a_rebuild",
    "test_the_caller_does_not_wait_for_the_reset_but_the_next_job_does",
    "test_a_task_that_cannot_be_cancelled_touches_no_value_of_a_later_job",
    "test_a_rebuild_that_fails_hands_out_nothing",
    "test_it_is_torn_down_and_built_anew_with_a_warning",
    "test_a_false_answer_or_an_exception_rebuilds",
    "test_when_it_is_rebuilt_replaced_and_removed",
    "test_a_teardown_that_fails_keeps_nothing_from_going_on",
    "test_using_one_counts_as_using_what_it_was_built_on",
    "test_what_becomes_another_object_rebuilds_what_was_built_on_it",
    "test_a_reset_by_the_initializer_that_kills_its_process_counts_as_well",
    "test_lazy_is_built_at_the_first_read",
    "test_threads_that_a_build_inside_a_job_started_are_not_the_jobs",
    "test_a_job_can_be_stopped_while_it_builds_and_the_next_one_builds",
    "test_the_first_job_sees_what_the_initializer_made",
    "test_what_differs_from_the_fresh_value_is_reported_with_its_job",
    "test_other_code_is_one_warning_that_names_both",
    "test_an_assignment_inside_a_job_is_ignored_with_one_warning",
    "test_growth_counts_and_not_what_the_variables_need",
    "test_a_thread_left_behind_gets_no_value_of_a_later_job",
    "test_a_forgotten_field_is_told_once_for_each_function_in_log_event_and_state",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out what isolated jobs cannot show."""
    for item in items:
        name = getattr(item, "originalname", "")
        if "--isolate" in EVERY_WORKER and (name in NOT_ISOLATED or item.name.endswith("reinitializer]")):
            item.add_marker(pytest.mark.skip(reason="jobs run on a snapshot: nothing is done to the value itself"))


@pytest.fixture
def client(request: pytest.FixtureRequest) -> Iterator[Client]:
    """This process as a driver: of the module's deployment if the test uses that, else of the test's database.

    Afterwards nothing is declared any more, so that the module's worker is as good as new.
    """
    if "deployment" in request.fixturenames:
        deployment: Deployment = request.getfixturevalue("deployment")
        url = deployment.url
    else:
        url = request.getfixturevalue("redis_url")
    driver_scope.close()
    before = swap_default(None)
    client = envq.connect(url)
    yield client
    for name in client.declarations.snapshot().declarations:
        client.declarations.remove(name)
    driver_scope.close()
    swap_default(before)


@pytest.fixture
def diary(client: Client) -> Diary:
    """What code on workers writes down."""
    return Diary(client.settings.url)


@pytest.fixture
def gate(client: Client) -> Gate:
    """Where code on workers waits for the test."""
    return Gate(client.settings.url)


@pytest.fixture
def declare(client: Client) -> Callable[..., None]:
    """Declare, and return when ``workers`` executors hold it: ``declare("x", make, reset, workers=2)``."""

    def declare(name: str, *args: object, workers: int = 1, **options: object) -> None:
        setattr(env, name, EnvironmentVariable(*args, **options))  # type: ignore[arg-type]
        envq.wait_ready(name, workers=workers, timeout=30)

    return declare


@pytest.fixture
def states(client: Client) -> Callable[[str], list[VariableState]]:
    """What each executor that knows the variable says of it."""

    def states(name: str) -> list[VariableState]:
        return [view.variables[name] for view in client.executors.all() if name in view.variables]

    return states
