"""Carries connections from a socket that listens outside to the API server inside: `python -m tests.node.relay FD`."""

import asyncio
import contextlib
import socket
import sys
from collections.abc import Awaitable, Callable

from tests.node.layout import API_IP, API_PORT

CHUNK = 1 << 16


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while chunk := await reader.read(CHUNK):
            writer.write(chunk)
            await writer.drain()
    with contextlib.suppress(OSError):
        writer.close()


def to(host: str, port: int) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]:
    """For a server whose connections lead to this address."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            inner_reader, inner_writer = await asyncio.open_connection(host, port)
        except OSError:
            writer.close()
            return
        await asyncio.gather(_carry(reader, inner_writer), _carry(inner_reader, writer))

    return serve


async def main(descriptor: int) -> None:
    server = await asyncio.start_server(to(API_IP, API_PORT), sock=socket.socket(fileno=descriptor))
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
