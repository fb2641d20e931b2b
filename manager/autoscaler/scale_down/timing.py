"""Since when nodes are unneeded, and when they may go. All times in Unix seconds."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from manager.autoscaler.scale_down.rules import Delays, GroupRules, UnremovableReason
from shared import durations


@dataclass(frozen=True, slots=True)
class CooldownTimestamps:
    """When each event happened last, None if never; for the cluster or for one group."""

    added: float | None = None
    deleted: float | None = None
    failed: float | None = None

    def latest(self, other: "CooldownTimestamps") -> "CooldownTimestamps":
        """The later timestamp of each pair."""
        pairs = zip(self._all, other._all, strict=True)
        return CooldownTimestamps(*(max(filter(None, pair), default=None) for pair in pairs))

    def shifted(self, seconds: float) -> "CooldownTimestamps":
        """The same on a clock that is `seconds` ahead."""
        return CooldownTimestamps(*(None if each is None else each + seconds for each in self._all))

    @property
    def _all(self) -> tuple[float | None, ...]:
        return self.added, self.deleted, self.failed


def unneeded_since(before: Mapping[str, float], unneeded: Iterable[str], now: float) -> dict[str, float]:
    """By node. A node that was needed in between starts again; a clock that goes back does not prolong the wait."""
    return {name: min(before.get(name, now), now) for name in unneeded}


def wanted_seconds(is_ready: bool, rules: GroupRules) -> float:
    """How long a node must be unneeded before it goes."""
    return rules.unneeded_seconds if is_ready else rules.unready_seconds


def too_short(since: float, is_ready: bool, rules: GroupRules, now: float) -> tuple[UnremovableReason, str] | None:
    """Why a node that is unneeded since `since` still waits; None once it has waited for more than the set time."""
    wanted = wanted_seconds(is_ready, rules)
    if since + wanted < now:
        return None
    reason = UnremovableReason.NOT_UNNEEDED_LONG if is_ready else UnremovableReason.NOT_UNREADY_LONG
    what = "not needed" if is_ready else "unready and not needed"
    return reason, f"{what} for {_duration(now - since)}, and goes after more than {_duration(wanted)}"


def cooldown(happened: CooldownTimestamps, delays: Delays, now: float) -> str | None:
    """What deletions wait for, None if nothing. If several delays apply, the one that ends last."""
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
