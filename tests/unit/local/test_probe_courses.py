"""What a row of a probe's answers means, and when the next one is due."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy.local.kubelet import probes
from deploy.local.kubelet.probes import Answer, Course, Kind, Result
from deploy.local.kubelet.wire import ContainerPort, Probe, RunnableContainer

START = 1000.0


def course(answers: str, *, success: int = 1, failure: int = 3) -> Result:
    """Where a probe stands after answers like "++-"."""
    probe = Probe(success_threshold=success, failure_threshold=failure, period_seconds=10)
    current = probes.begun(probe, START)
    for answer in answers:
        current = probes.after(current, probe, Answer(answer == "+"), current.next_at)
    return current.result


@pytest.mark.parametrize(
    ("answers", "result"),
    [
        ("", Result.PENDING),
        ("-", Result.PENDING),
        ("--", Result.PENDING),
        ("---", Result.FAILED),
        ("+", Result.PASSED),
        ("+--", Result.PASSED),
        ("+---", Result.FAILED),
        ("--+--", Result.PASSED),
        ("---+", Result.PASSED),
    ],
)
def test_a_result_turns_when_enough_answers_in_a_row_agree(answers: str, result: Result) -> None:
    assert course(answers) is result


def test_success_may_need_a_row_as_well() -> None:
    assert course("+", success=2) is Result.PENDING
    assert course("+-+", success=2) is Result.PENDING
    assert course("++", success=2) is Result.PASSED


@given(st.text("+-", max_size=30), st.integers(1, 5))
def test_a_single_answer_against_never_turns_a_result_whose_threshold_is_higher(answers: str, threshold: int) -> None:
    before = course(answers + "+", failure=threshold + 1)
    assert course(answers + "+-", failure=threshold + 1) is before


def test_the_first_question_waits_for_the_initial_delay_and_the_next_ones_keep_the_beat() -> None:
    probe = Probe(initial_delay_seconds=5, period_seconds=10)
    first = probes.begun(probe, START)
    assert first.next_at == START + 5
    second = probes.after(first, probe, Answer(True), first.next_at + 0.3)
    assert second.next_at == START + 15
    assert probes.after(second, probe, Answer(True), START + 60).next_at == START + 70


@pytest.mark.parametrize(
    ("startup", "asked"),
    [
        (None, {Kind.LIVENESS, Kind.READINESS}),
        (Result.PENDING, {Kind.STARTUP}),
        (Result.PASSED, {Kind.LIVENESS, Kind.READINESS}),
        (Result.FAILED, set()),
    ],
)
def test_other_probes_wait_for_the_startup_probe(startup: Result | None, asked: set[Kind]) -> None:
    current = None if startup is None else Course(START, startup)
    assert {kind for kind in Kind if probes.may_run(kind, current)} == asked


def test_ports_are_found_by_the_name_the_container_gives_them() -> None:
    container = RunnableContainer(name="main", ports=(ContainerPort(name="http", container_port=8080),))
    assert [probes.port_number(port, container) for port in ("http", 1, "2")] == [8080, 1, 2]
    with pytest.raises(ValueError, match="'grpc'"):
        probes.port_number("grpc", container)


def test_a_probe_of_an_unknown_kind_does_not_pass() -> None:
    answer = probes.ask(Probe(), RunnableContainer(), lambda command, timeout: (0, b""), "127.0.0.1")
    assert not answer.passed
    assert "exec, httpGet and tcpSocket" in answer.detail
