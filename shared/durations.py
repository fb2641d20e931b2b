"""Durations as Go writes them ("1h30m", "500ms") and instants as Kubernetes writes them (RFC 3339), in seconds."""

import datetime as dt
import re

_PART = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h)")
_SECONDS = {
    "ns": 1e-9,
    "us": 1e-6,
    "µs": 1e-6,
    "μs": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "m": 60.0,
    "h": 3600.0,
}


def parse(text: str) -> float:
    """Seconds in a Go duration; a bare "0" is allowed. Raises ValueError."""
    body = text.removeprefix("-").removeprefix("+")
    if body == "0":
        return 0.0
    if not body or _PART.sub("", body):
        raise ValueError("not a duration (expected for example '30s', '5m', '1h30m')")
    seconds = sum(float(number) * _SECONDS[unit] for number, unit in _PART.findall(body))
    return -seconds if text.startswith("-") else seconds


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
    parsed = dt.datetime.fromisoformat(text)
    if parsed.tzinfo is None:
        raise ValueError("not an RFC 3339 instant: it has no time zone")
    return parsed.timestamp()
