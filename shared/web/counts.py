"""Connections and requests that a port rejected, by reason; plain numbers, which `shared.web.metrics` exposes."""

import enum
from collections import Counter


class Reason(enum.StrEnum):
    """Why a connection was refused or ended before its client ended it."""

    FULL = "full"  # a new connection, for which no other could be cut
    MADE_ROOM = "made_room"  # cut for a new connection, because there were too many
    DESCRIPTORS = "descriptors"  # cut for a new connection, because the process had no descriptors left
    MEMORY = "memory"  # too many bytes of bodies and unread answers in all
    HANDSHAKE = "handshake"  # of TLS: failed, or took too long
    TIMEOUT = "timeout"  # headers or body did not arrive in time
    LARGE_HEADERS = "large_headers"
    MALFORMED = "malformed"  # not HTTP, or too many headers
    SLOW_READER = "slow_reader"  # the client did not read the answer in time
    PIPELINED = "pipelined"  # a further request before the first was answered
    UNASKED_BODY = "unasked_body"  # a body that went on after its answer


REFUSED_CODES = (401, 403, 415, 429, 503)


class Counts:
    """The counts of one port since its start. One thread writes; the keys never change, so that others can read."""

    def __init__(self) -> None:
        self.connections = Counter(dict.fromkeys(Reason, 0))
        self.requests = Counter(dict.fromkeys(REFUSED_CODES, 0))
