"""Schedules of disruption budgets: five cron fields or one of cron's macros, in UTC as in Karpenter."""

import datetime as dt
import math
import re
from dataclasses import dataclass

from shared.errors import HeadroomError

DAY_SECONDS = 86_400.0

_MACROS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_PART = re.compile(r"(\*|[a-z0-9]{1,3})(?:-([a-z0-9]{1,3}))?(?:/([0-9]{1,2}))?")


class BadSchedule(HeadroomError):
    """The text is no schedule; the message says what is wrong with it."""


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()
    first: int = 0  # the number of the first name

    def parse(self, text: str) -> frozenset[int]:
        return frozenset(number for part in text.split(",") for number in self._part(part))

    def _part(self, text: str) -> range:
        found = _PART.fullmatch(text)
        if found is None:
            raise BadSchedule(f"{text!r} is no value of its {self.name}")
        low, high, step = found.groups()
        if low == "*" and high is None:
            first, last = self.low, self.high
        else:
            first = self._number(low)
            last = self._number(high) if high else self.high if step else first
        if first > last:
            raise BadSchedule(f"{text!r} of its {self.name} ends before it begins")
        if step is not None and int(step) == 0:
            raise BadSchedule(f"{text!r} of its {self.name} has a step of 0")
        return range(first, last + 1, int(step or 1))

    def _number(self, text: str) -> int:
        number = self.names.index(text) + self.first if text in self.names else -1
        if text.isdecimal():
            number = int(text)
        if not self.low <= number <= self.high:
            raise BadSchedule(f"{text!r} is no {self.name} from {self.low} to {self.high}")
        return number


_FIELDS = (
    _Field("minute", 0, 59),
    _Field("hour", 0, 23),
    _Field("day of month", 1, 31),
    _Field("month", 1, 12, _MONTHS, 1),
    _Field("day of week", 0, 7, _WEEKDAYS),
)


@dataclass(frozen=True, slots=True)
class CronSchedule:
    """Each field's permitted values; Sunday is 0. Where both kinds of days are restricted, either will do."""

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    any_day: bool
    any_weekday: bool

    def began(self, now: float, within_seconds: float) -> float | None:
        """The last time (Unix seconds) that it began, up to and including `now`; None if that is longer ago."""
        today = dt.datetime.fromtimestamp(now, dt.UTC).replace(hour=0, minute=0, second=0, microsecond=0)
        for back in range(math.ceil(within_seconds / DAY_SECONDS) + 1):
            day = today - dt.timedelta(days=back)
            if self._holds_on(day):
                starts = (day.timestamp() + 3600 * hour + 60 * minute for hour in self.hours for minute in self.minutes)
                last = max((start for start in starts if start <= now), default=None)
                if last is not None:
                    return last if now - last < within_seconds else None
        return None

    def _holds_on(self, day: dt.datetime) -> bool:
        of_month, of_week = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        if day.month not in self.months:
            return False
        return of_month and of_week if self.any_day or self.any_weekday else of_month or of_week


def parse(text: str) -> CronSchedule:
    """Raises BadSchedule."""
    macro = _MACROS.get(text.strip().lower())
    if macro is None and text.startswith("@"):
        raise BadSchedule(f"{text!r} is none of {', '.join(_MACROS)}")
    parts = (macro or text).lower().split()
    if len(parts) != len(_FIELDS):
        raise BadSchedule(f"it has {len(parts)} fields; {len(_FIELDS)} are minute, hour, day, month and day of week")
    minutes, hours, days, months, weekdays = (each.parse(part) for each, part in zip(_FIELDS, parts, strict=True))
    weekdays = frozenset(day % 7 for day in weekdays)
    return CronSchedule(minutes, hours, days, months, weekdays, parts[2].startswith("*"), parts[4].startswith("*"))
