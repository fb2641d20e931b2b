"""AWS's services, as moto has them, behind real HTTP: `python -m tests.support.aws_cloud FOLDER`.

The script (see `scripted`) makes them fail: `errors` ({action: [status, code, message]}, or a list of such, null for
none, of which each call takes the next and all further ones the last), `hangs` ([action]: until the script is another
one), `answers` ({action: XML}) and `loses` ([action]: done, and not answered for).
"""

from __future__ import annotations

import io
import logging
import os
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl
from xml.sax.saxutils import escape

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

from tests.support.scripted import ScriptedServer

_ERROR = "<Code>{code}</Code><Message>{message}</Message>"
_ENVELOPES = {  # EC2 speaks a dialect of its own
    True: "<Response><Errors><Error>{}</Error></Errors><RequestID>r</RequestID></Response>",
    False: "<ErrorResponse><Error><Type>Sender</Type>{}</Error><RequestId>r</RequestId></ErrorResponse>",
}
_EC2_VERSION = "2016-11-15"

StartResponse = Callable[..., object]


class Cloud:
    """Does what the script says, else what AWS would."""

    def __init__(self, server: ScriptedServer) -> None:
        self._server = server
        self._lock = threading.Lock()
        self._last: dict[str, Any] = {}
        self._counts: Counter[str] = Counter()
        self._moto = DomainDispatcherApplication(create_backend_app)

    def __call__(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        environ["wsgi.input"] = io.BytesIO(body)
        asked = dict(parse_qsl(body.decode()))
        action = asked.get("Action", "")
        if action:
            script = self._server.record(asked, lambda script: action in script.get("hangs", ()))
            if script != self._last:
                self._last, self._counts = script, Counter()
            status, text = self._scripted(action, script, is_ec2=asked.get("Version") == _EC2_VERSION)
            if text:
                start_response(f"{status} scripted", [("Content-Type", "text/xml")])
                return [text.encode()]
            if action in script.get("loses", ()):
                list(self._moto(environ, lambda *_: None))
                start_response("504 lost", [])
                return []
        found: Iterable[bytes] = self._moto(environ, start_response)
        return found

    def _scripted(self, action: str, script: dict[str, Any], *, is_ec2: bool) -> tuple[int, str]:
        errors = script.get("errors", {}).get(action)
        if errors and isinstance(errors[0], list | None):
            with self._lock:
                errors = errors[min(self._counts[action], len(errors) - 1)]
                self._counts[action] += 1
        if errors:
            status, code, message = errors
            return status, _ENVELOPES[is_ec2].format(_ERROR.format(code=code, message=escape(message)))
        return 200, script.get("answers", {}).get(action, "")


def main(folder: Path) -> None:
    os.environ["MOTO_EC2_LOAD_DEFAULT_AMIS"] = "false"  # thousands, made anew for every test
    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # the calls are written down already
    scripted = ScriptedServer(folder)
    server = make_server("127.0.0.1", 0, Cloud(scripted), threaded=True)
    scripted.announce(server.server_port)
    server.serve_forever()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
