"""What a port has turned away, by reason; plain numbers, of which `shared.web.metrics` makes metrics."""

import enum
from collections import Counter


class Reason(enum.StrEnum):
    """Why a connection was refused or ended before its client ended it."""

    FULL = "full"  # a new one, for which no other could make room
    MADE_ROOM = "made_room"  # for a new one, as there were too many
    DESCRIPTORS = "descriptors"  # for a new one, as the process had no descriptors left
    MEMORY = "memory"  # too many bytes of bodies and unread answers in all
    HANDSHAKE = "handshake"  # of TLS, that failed or took too long
    TIMEOUT = "timeout"  # headers or body were not sent in time
    LARGE_HEADERS = "large_headers"
    MALFORMED = "malformed"  # what was sent is not HTTP, or has too many headers
    SLOW_READER = "slow_reader"  # the answer was not read in time
    PIPELINED = "pipelined"  # too many requests before the first was answered
    UNASKED_BODY = "unasked_body"  # a body that went on after its answer


REFUSED_CODES = (401, 403, 415, 429, 503)


class Counts:
    """Of one port, since its start. One thread writes; no key ever comes or goes, so that others can read."""

    def __init__(self) -> None:
        self.connections = Counter(dict.fromkeys(Reason, 0))
        self.requests = Counter(dict.fromkeys(REFUSED_CODES, 0))
