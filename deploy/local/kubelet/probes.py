"""Probes: what they ask, and what a row of answers means. Pure but for `ask`, which asks once."""

import enum
import http.client
import socket
import ssl
import subprocess
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from deploy.local.kubelet.process import StartError
from deploy.local.kubelet.wire import HttpGetAction, Probe, RunnableContainer, TcpSocketAction

_MAX_BODY = 10_240
_AGENT = "kube-probe/headroom"

Execute = Callable[[tuple[str, ...], float], tuple[int, bytes]]  # command, timeout -> exit code, output


class Kind(enum.StrEnum):
    STARTUP = "Startup"
    LIVENESS = "Liveness"
    READINESS = "Readiness"


class Result(enum.Enum):
    """What stands after a row of answers; PENDING until a threshold was met."""

    PENDING = enum.auto()
    PASSED = enum.auto()
    FAILED = enum.auto()


@dataclass(frozen=True)
class Answer:
    """One answer; `detail` says what was wrong."""

    passed: bool
    detail: str = ""


class Course(msgspec.Struct, frozen=True):
    """How one probe of one run of a container has gone so far. Times are Unix seconds."""

    next_at: float
    result: Result = Result.PENDING
    row: int = 0  # equal answers in a row, of which `last` was one
    last: bool | None = None


def probes_of(container: RunnableContainer) -> dict[Kind, Probe]:
    """The probes the container has."""
    all_kinds = {
        Kind.STARTUP: container.startup_probe,
        Kind.LIVENESS: container.liveness_probe,
        Kind.READINESS: container.readiness_probe,
    }
    return {kind: probe for kind, probe in all_kinds.items() if probe is not None}


def begun(probe: Probe, started_at: float, result: Result = Result.PENDING) -> Course:
    """The course of a probe of a container that started then."""
    return Course(next_at=started_at + probe.initial_delay_seconds, result=result)


def after(course: Course, probe: Probe, answer: Answer, now: float) -> Course:
    """`course` with one more answer; the result turns only once enough of them agree."""
    row = course.row + 1 if course.last is answer.passed else 1
    result = course.result
    if answer.passed and row >= probe.success_threshold:
        result = Result.PASSED
    elif not answer.passed and row >= probe.failure_threshold:
        result = Result.FAILED
    # On the beat of the period, however late the answer came; a beat that has passed meanwhile is left out.
    beat = course.next_at + probe.period_seconds
    return Course(
        next_at=beat if beat > now else now + probe.period_seconds, result=result, row=row, last=answer.passed
    )


def may_run(kind: Kind, startup: Course | None) -> bool:
    """Until the startup probe has passed no other is asked, and after that it is asked no more."""
    if kind is Kind.STARTUP:
        return startup is not None and startup.result is Result.PENDING
    return startup is None or startup.result is Result.PASSED


def ask(probe: Probe, container: RunnableContainer, execute: Execute, host: str) -> Answer:
    """Asks once; takes as long as the probe's timeout at most. Never raises for what the container does."""
    try:
        if probe.exec is not None:
            return _exec(probe.exec.command or (), execute, probe.timeout_seconds)
        if probe.http_get is not None:
            return _http(probe.http_get, container, host, probe.timeout_seconds)
        if probe.tcp_socket is not None:
            return _tcp(probe.tcp_socket, container, host, probe.timeout_seconds)
    except (OSError, http.client.HTTPException, StartError, ValueError) as error:
        return Answer(False, str(error) or type(error).__name__)
    return Answer(False, "this kubelet knows exec, httpGet and tcpSocket probes only")


def port_number(port: int | str, container: RunnableContainer) -> int:
    """A port by number or by the name the container gives it. Raises ValueError."""
    if isinstance(port, int) or port.isdigit():
        return int(port)
    for each in container.ports or ():
        if each.name == port:
            return each.container_port
    raise ValueError(f"container {container.name} has no port named {port!r}")


def _exec(command: tuple[str, ...], execute: Execute, timeout_seconds: float) -> Answer:
    try:
        code, output = execute(command, timeout_seconds)
    except subprocess.TimeoutExpired:
        return Answer(False, f"command timed out: {' '.join(command)!r} timed out after {timeout_seconds}s")
    return Answer(code == 0, "" if code == 0 else output.decode(errors="replace").strip() or f"exit code {code}")


def _http(action: HttpGetAction, container: RunnableContainer, host: str, timeout_seconds: float) -> Answer:
    target, port = action.host or host, port_number(action.port, container)
    headers = {"User-Agent": _AGENT, "Accept": "*/*"} | {each.name: each.value for each in action.http_headers or ()}
    connection: http.client.HTTPConnection
    if action.scheme.upper() == "HTTPS":
        # As everywhere in Kubernetes, a probe asks whether something answers, not who.
        context = ssl._create_unverified_context()
        connection = http.client.HTTPSConnection(target, port, timeout=timeout_seconds, context=context)
    else:
        connection = http.client.HTTPConnection(target, port, timeout=timeout_seconds)
    try:
        connection.request("GET", f"/{action.path.lstrip('/')}", headers=headers)
        response = connection.getresponse()
        response.read(_MAX_BODY)
    finally:
        connection.close()
    passed = 200 <= response.status < 400
    return Answer(passed, "" if passed else f"HTTP probe failed with statuscode: {response.status}")


def _tcp(action: TcpSocketAction, container: RunnableContainer, host: str, timeout_seconds: float) -> Answer:
    with socket.create_connection((action.host or host, port_number(action.port, container)), timeout_seconds):
        return Answer(True)
