"""The limits of one port: how much it accepts at a time, and how long it waits."""

import logging
from dataclasses import dataclass

from shared.telemetry import OncePerMinute

logger = logging.getLogger("shared.web")
for _noisy in (logger, logging.getLogger("uvicorn.error"), logging.getLogger("asyncio")):
    _noisy.addFilter(OncePerMinute())


@dataclass(frozen=True)
class Limits:
    """The limits of one port. `held_bytes`: request bodies until they are answered, and answers that clients do not
    read.

    `answering`: complete requests without an answer yet; health requests are answered beyond that. `unasked_bytes`: the
    part of a body that comes after the answer. `return_seconds`: the time after a flood until its memory returns to the
    kernel.
    """

    connections: int = 512
    answering: int = 64
    held_bytes: int = 96 << 20
    unasked_bytes: int = 16 << 20
    header_bytes: int = 64 << 10
    headers: int = 100
    handshake_seconds: float = 10.0
    header_seconds: float = 10.0
    body_seconds: float = 30.0
    write_seconds: float = 30.0
    keep_alive_seconds: int = 5
    return_seconds: float = 10.0
