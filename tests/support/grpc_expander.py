"""An expander behind a real gRPC server: `python -m tests.support.grpc_expander FOLDER`.

FOLDER/script.json says how it answers, and is read at every call: `groups` (the best ones), `error` ([code, text]),
`raw` (hex), `hangs` (until the script is another one). It speaks TLS with FOLDER/server.crt and server.key. What it was
asked stands in FOLDER/calls, one JSON a line; its port in FOLDER/port.
"""

from __future__ import annotations

import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
from google.protobuf import json_format

from tests.support.grpc_messages import CLASSES

METHOD = "/grpcplugin.Expander/BestOptions"


class Expander(grpc.GenericRpcHandler):
    """Answers what the script says."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[bytes, bytes] | None:
        return grpc.unary_unary_rpc_method_handler(self._answer) if details.method == METHOD else None

    def _answer(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        asked = json_format.MessageToDict(CLASSES["BestOptionsRequest"].FromString(request))
        with (self._folder / "calls").open("a") as calls:
            calls.write(json.dumps(asked) + "\n")
        script_file = self._folder / "script.json"
        written = script_file.read_text()
        script: dict[str, Any] = json.loads(written)
        while script.get("hangs") and script_file.read_text() == written:
            time.sleep(0.02)
        if "error" in script:
            code, text = script["error"]
            context.abort(grpc.StatusCode[code], text)
        if "raw" in script:
            return bytes.fromhex(script["raw"])
        answer = {"options": [{"nodeGroupId": group} for group in script.get("groups", ())]}
        return bytes(json_format.ParseDict(answer, CLASSES["BestOptionsResponse"]()).SerializeToString())


def main(folder: Path) -> None:
    server = grpc.server(ThreadPoolExecutor(4), handlers=[Expander(folder)])
    pair = [((folder / "server.key").read_bytes(), (folder / "server.crt").read_bytes())]
    port = server.add_secure_port("localhost:0", grpc.ssl_server_credentials(pair))
    server.start()
    waiting = folder / "port.new"
    waiting.write_text(str(port))
    waiting.rename(folder / "port")
    server.wait_for_termination()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
