"""Since when nodes are needed no more, and when it is time that they go. All times in Unix seconds."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from manager.autoscaler.scale_down.rules import Delays, GroupRules, UnremovableReason
from shared import durations


@dataclass(frozen=True, slots=True)
class CooldownTimestamps:
    """When something of a kind happened last, None where it never did; of the cluster or of one group."""

    added: float | None = None
    deleted: float | None = None
    failed: float | None = None

    def latest(self, other: "CooldownTimestamps") -> "CooldownTimestamps":
        """The later ones of both."""
        pairs = zip(self._all, other._all, strict=True)
        return CooldownTimestamps(*(max(filter(None, pair), default=None) for pair in pairs))

    def shifted(self, seconds: float) -> "CooldownTimestamps":
        """By another clock, which is so far ahead."""
        return CooldownTimestamps(*(None if each is None else each + seconds for each in self._all))

    @property
    def _all(self) -> tuple[float | None, ...]:
        return self.added, self.deleted, self.failed


def unneeded_since(before: Mapping[str, float], unneeded: Iterable[str], now: float) -> dict[str, float]:
    """By node. One that was needed in between begins anew; a clock that went back does not prolong anything."""
    return {name: min(before.get(name, now), now) for name in unneeded}


def wanted_seconds(is_ready: bool, rules: GroupRules) -> float:
    """How long a node has to be unneeded before it goes."""
    return rules.unneeded_seconds if is_ready else rules.unready_seconds


def too_short(since: float, is_ready: bool, rules: GroupRules, now: float) -> tuple[UnremovableReason, str] | None:
    """Why a node that is unneeded since then is to wait; None when it has waited long enough, which is for more than
    the time set."""
    wanted = wanted_seconds(is_ready, rules)
    if since + wanted < now:
        return None
    reason = UnremovableReason.NOT_UNNEEDED_LONG if is_ready else UnremovableReason.NOT_UNREADY_LONG
    what = "not needed" if is_ready else "unready and not needed"
    return reason, f"{what} for {_duration(now - since)}, and goes after more than {_duration(wanted)}"


def cooldown(happened: CooldownTimestamps, delays: Delays, now: float) -> str | None:
    """What nodes wait for; None when nothing is in the way. Of several delays, the one that ends last."""
    waits = [
        (moment + seconds, what)
        for moment, seconds, what in (
            (happened.added, delays.after_add_seconds, "nodes were added"),
            (happened.deleted, delays.after_delete_seconds, "nodes were deleted"),
            (happened.failed, delays.after_failure_seconds, "a deletion failed"),
        )
        if moment is not None and moment + seconds > now
    ]
    if not waits:
        return None
    end, what = max(waits)
    return f"{what} not long ago; nothing is deleted for another {_duration(end - now)}"


def _duration(seconds: float) -> str:
    return durations.render(round(seconds))
