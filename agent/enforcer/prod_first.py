"""Prod first: the cap on what Mid and Batch pods use as best-effort pods while Prod waits too long for CPU. Pure.

    down    while Prod waits too long: at once, and again every 10 s, to half of what they use
    hold    while it does not, for a minute after it last did
    up      after that: by a tenth of the node every 10 s, until nothing caps them

The cap moves at most every 10 s, which is the time that the measure of waiting is a mean of, and rises a minute after a
fall at the earliest, so no swing is shorter than that. It never takes from Mid pods what they request. The quota is
that of the whole class, so what other best-effort pods use is added to it, and it acts beside Koordinator's rule: the
lower of the two applies.
"""

from typing import NamedTuple

STEP_SECONDS = 10.0
HOLD_SECONDS = 60.0
WAITING_SECONDS = 5.0  # since Prod last waited too long, for it to wait still

_RISE_SHARE = 10  # of the node, one part of this many


class CpuCap(NamedTuple):
    """A cap in milli-cores, and the monotonic times at which it last moved and last fell."""

    milli: int
    moved_at: float
    fell_at: float


class BestEffortCpu(NamedTuple):
    """In milli-cores: what Mid and Batch pods among the best-effort ones use, what Mid pods among them request (or the
    policy's minimum), what the other best-effort pods use, and the node's capacity.
    """

    used_milli: int
    held_milli: int
    others_milli: int
    capacity_milli: int


def next_cap(
    before: CpuCap | None, cpu: BestEffortCpu | None, *, waited_seconds: float | None, now: float
) -> CpuCap | None:
    """The cap from `now` on, in monotonic seconds; None is none. `cpu` is None without best-effort Mid or Batch pods.

    `waited_seconds` is the time since Prod last waited too long, None unless it is slowed.
    """
    if cpu is None:
        return None
    if before is not None and now - before.moved_at < STEP_SECONDS:
        return before
    if waited_seconds is not None and waited_seconds <= WAITING_SECONDS:
        lowered = max(cpu.held_milli, cpu.used_milli // 2)
        return CpuCap(lowered if before is None else min(before.milli, lowered), now, now)
    is_calm = waited_seconds is None or waited_seconds >= HOLD_SECONDS
    if before is None or not is_calm or now - before.fell_at < HOLD_SECONDS:
        return before
    raised = before.milli + max(1, cpu.capacity_milli // _RISE_SHARE)
    return None if raised >= cpu.capacity_milli else CpuCap(raised, now, before.fell_at)


def capped(left_milli: int, cap: CpuCap | None, cpu: BestEffortCpu | None) -> int:
    """What Koordinator's rule leaves to best-effort pods together, within the cap."""
    if cap is None or cpu is None:
        return left_milli
    return min(left_milli, max(cap.milli, cpu.held_milli) + cpu.others_milli)
