"""A container's life as plain values: what happened to it, and whether and when it restarts. Pure."""

import enum

import msgspec

FIRST_BACKOFF_SECONDS = 10.0
MAX_BACKOFF_SECONDS = 300.0
CALM_SECONDS = 600.0  # after a run this long, the backoff starts anew

SIGKILLED = 137
COMPLETED, ERROR, OOM_KILLED = "Completed", "Error", "OOMKilled"
CRASH_LOOP, CREATING = "CrashLoopBackOff", "ContainerCreating"


class RestartPolicy(enum.StrEnum):
    ALWAYS = "Always"
    ON_FAILURE = "OnFailure"
    NEVER = "Never"


class Exit(msgspec.Struct, frozen=True):
    """The end of a container. Times are Unix seconds."""

    code: int
    reason: str
    started_at: float
    finished_at: float
    container_id: str


class ContainerRecord(msgspec.Struct, frozen=True):
    """All that is known about one container."""

    name: str
    container_id: str = ""
    started_at: float = 0.0
    restarts: int = 0
    failures: int = 0  # consecutive ones; determine the backoff
    retry_at: float = 0.0
    exit: Exit | None = None
    previous_exit: Exit | None = None
    refusal: tuple[str, str] | None = None  # (reason, message) if it could not be started

    @property
    def is_running(self) -> bool:
        return bool(self.container_id) and self.exit is None

    @property
    def has_started(self) -> bool:
        return bool(self.container_id)


def exit_reason(code: int, *, oom_killed: bool) -> str:
    if code == 0:
        return COMPLETED
    return OOM_KILLED if oom_killed and code == SIGKILLED else ERROR


def exit_code(returncode: int) -> int:
    """Popen's return code as a shell reports it: death by signal n is 128 + n."""
    return 128 - returncode if returncode < 0 else returncode


def started(record: ContainerRecord, *, container_id: str, now: float) -> ContainerRecord:
    """`record` with its next process."""
    return msgspec.structs.replace(
        record,
        container_id=container_id,
        started_at=now,
        restarts=record.restarts + (1 if record.exit else 0),
        exit=None,
        previous_exit=record.exit or record.previous_exit,
        refusal=None,
    )


def ended(record: ContainerRecord, *, code: int, reason: str, now: float) -> ContainerRecord:
    """`record` after its process ended; the first restart is immediate, later ones wait 10 s, 20 s, ... 300 s."""
    end = Exit(code, reason, record.started_at, now, record.container_id)
    failures = 0 if now - record.started_at >= CALM_SECONDS else record.failures
    return msgspec.structs.replace(record, exit=end, failures=failures + 1, retry_at=now + backoff_seconds(failures))


def refused(record: ContainerRecord, *, reason: str, message: str, now: float) -> ContainerRecord:
    """`record` whose process could not be started; the kubelet tries again."""
    return msgspec.structs.replace(
        record,
        failures=record.failures + 1,
        retry_at=now + backoff_seconds(record.failures + 1),
        refusal=(reason, message),
    )


def backoff_seconds(failures: int) -> float:
    """kubelet's backoff: none after the first failure, then 10 s, doubling up to five minutes."""
    if failures <= 0:
        return 0.0
    return float(min(MAX_BACKOFF_SECONDS, FIRST_BACKOFF_SECONDS * 2 ** min(failures - 1, 16)))


def runs_again(record: ContainerRecord, policy: RestartPolicy) -> bool:
    """Whether a container that ended restarts."""
    if record.exit is None:
        return False
    return policy is RestartPolicy.ALWAYS or (policy is RestartPolicy.ON_FAILURE and record.exit.code != 0)


def is_final(record: ContainerRecord, policy: RestartPolicy) -> bool:
    return record.exit is not None and not runs_again(record, policy)


def is_due(record: ContainerRecord, policy: RestartPolicy, now: float) -> bool:
    """Whether the container must be started now."""
    if record.is_running or now < record.retry_at:
        return False
    return not record.has_started or runs_again(record, policy)
