"""Durations as Go writes them ("1h30m", "500ms") and instants as Kubernetes writes them (RFC 3339), in seconds."""

import datetime as dt
import re
from decimal import Decimal

_PART = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)")
_NANOSECONDS = {
    "ns": 1,
    "us": 10**3,
    "µs": 10**3,
    "μs": 10**3,
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "h": 3600 * 10**9,
}
_MOST_NANOSECONDS = 2**63 - 1
_RFC3339 = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]+)?(?:Z|[+-][0-9]{2}:[0-5][0-9])"
)


def parse(text: str) -> float:
    """Seconds in a Go duration of whole nanoseconds; a bare "0" is allowed. Raises ValueError."""
    is_negative = text.startswith("-")
    body = text[1:] if text.startswith(("-", "+")) else text
    if body == "0":
        return 0.0
    if not body or _PART.sub("", body):
        raise ValueError("not a duration (expected for example '30s', '5m', '1h30m')")
    parts = [Decimal(number) * _NANOSECONDS[unit] for number, unit in _PART.findall(body)]
    if any(each > _MOST_NANOSECONDS + is_negative for each in (*parts, sum(parts))):
        raise ValueError("not a duration: longer than 292 years")
    seconds = sum(int(each) for each in parts) / 10**9
    return -seconds if is_negative else seconds


def render(seconds: float) -> str:
    """Seconds as Go prints a duration of whole milliseconds: 90 -> "1m30s", 0.5 -> "500ms"."""
    milliseconds = round(seconds * 1000)
    if abs(milliseconds) < 1000:
        return f"{milliseconds}ms" if milliseconds else "0s"
    sign, milliseconds = ("-", -milliseconds) if milliseconds < 0 else ("", milliseconds)
    minutes, milliseconds = divmod(milliseconds, 60_000)
    hours, minutes = divmod(minutes, 60)
    text = f"{milliseconds / 1000:g}s"
    if hours:
        return f"{sign}{hours}h{minutes}m{text}"
    return f"{sign}{minutes}m{text}" if minutes else sign + text


def timestamp(now: float) -> str:
    """RFC 3339 in UTC with second precision, as Kubernetes' metav1.Time."""
    return dt.datetime.fromtimestamp(now, dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def micro_timestamp(now: float) -> str:
    """RFC 3339 in UTC with microseconds, as Kubernetes' metav1.MicroTime."""
    return dt.datetime.fromtimestamp(now, dt.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def instant(text: str) -> float:
    """Unix seconds of an RFC 3339 instant. Raises ValueError."""
    if not _RFC3339.fullmatch(text):
        raise ValueError("not an RFC 3339 instant")
    return dt.datetime.fromisoformat(text).timestamp()
