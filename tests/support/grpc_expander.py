"""An expander behind a real gRPC server: `python -m tests.support.grpc_expander FOLDER`.

The script (see `scripted`) has `groups` (the best ones), `error` ([code, text]), `raw` (hex), `hangs` (until the script
is another one). It speaks TLS with FOLDER/server.crt and server.key.
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
from google.protobuf import json_format

from tests.support.grpc_messages import CLASSES
from tests.support.scripted import ScriptedServer

METHOD = "/grpcplugin.Expander/BestOptions"


class Expander(grpc.GenericRpcHandler):
    """Answers what the script says."""

    def __init__(self, server: ScriptedServer) -> None:
        self._server = server

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[bytes, bytes] | None:
        return grpc.unary_unary_rpc_method_handler(self._answer) if details.method == METHOD else None

    def _answer(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        asked = json_format.MessageToDict(CLASSES["BestOptionsRequest"].FromString(request))
        script = self._server.record(asked, lambda script: script.get("hangs"))
        if "error" in script:
            code, text = script["error"]
            context.abort(grpc.StatusCode[code], text)
        if "raw" in script:
            return bytes.fromhex(script["raw"])
        answer = {"options": [{"nodeGroupId": group} for group in script.get("groups", ())]}
        return bytes(json_format.ParseDict(answer, CLASSES["BestOptionsResponse"]()).SerializeToString())


def main(folder: Path) -> None:
    scripted = ScriptedServer(folder)
    server = grpc.server(ThreadPoolExecutor(4), handlers=[Expander(scripted)])
    pair = [((folder / "server.key").read_bytes(), (folder / "server.crt").read_bytes())]
    port = server.add_secure_port("localhost:0", grpc.ssl_server_credentials(pair))
    server.start()
    scripted.announce(port)
    server.wait_for_termination()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
