"""`python -m tests.support.faulty_apiserver`: the embedded API server with faults that tests script.

POST /_faults replaces the rules, GET tells those that are left; POST /_compact forgets the history of watches.
"""

import asyncio
import sys

from starlette.types import Message, Receive, Scope, Send

from deploy.local.apiserver.__main__ import main
from deploy.local.apiserver.app import Application, read_body
from deploy.local.apiserver.responses import failure, json_response
from deploy.local.apiserver.status import StatusError
from tests.support.faults import Disconnect, Faults, Rule, disconnected

_MOST_BYTES = 1 << 20


class FaultyApplication:
    """An application behind rules that say what goes wrong."""

    def __init__(self, app: Application) -> None:
        self._app = app
        self._faults = Faults()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] in ("/_faults", "/_compact"):
            await self._steer(scope, receive, send)
            return
        rule = None
        if self._faults:
            rule = self._faults.strike(scope["method"], f"{scope['path']}?{scope['query_string'].decode('latin-1')}")
        if rule is None:
            await self._app(scope, receive, send)
            return
        try:
            await self._go_wrong(rule, scope, receive, send)
        except Disconnect:
            scope["state"]["connection"].transport.close()
            await disconnected(receive)

    async def _go_wrong(self, rule: Rule, scope: Scope, receive: Receive, send: Send) -> None:
        match rule.action:
            case "delay":
                await asyncio.sleep(rule.seconds)
                await self._app(scope, receive, send)
            case "status":
                await read_body(receive, _MOST_BYTES)
                await failure(rule.error())(scope, receive, send)
            case "close":
                raise Disconnect
            case "truncate":
                await self._app(scope, receive, lambda message: _half(send, message))
            case "drop-watch":
                task = asyncio.create_task(self._app(scope, receive, send))
                done, _ = await asyncio.wait((task,), timeout=rule.seconds)
                if not done:
                    task.cancel()
                    await asyncio.wait((task,))
                    raise Disconnect

    async def _steer(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = await read_body(receive, _MOST_BYTES)
        try:
            if scope["path"] == "/_compact":
                self._app.compact()
            elif scope["method"] == "POST":
                self._faults.script(body)
            await json_response(self._faults.rules())(scope, receive, send)
        except StatusError as error:
            await failure(error)(scope, receive, send)


async def _half(send: Send, message: Message) -> None:
    """Passes a message on, but only the first half of an answer that is complete."""
    if message["type"] != "http.response.body" or message.get("more_body"):
        await send(message)
        return
    await send({"type": "http.response.body", "body": message["body"][: len(message["body"]) // 2], "more_body": True})
    raise Disconnect


if __name__ == "__main__":
    sys.exit(main(FaultyApplication))
