"""A cloud behind a real gRPC server: `python -m tests.support.grpc_cloud FOLDER`.

The script (see `scripted`) has `answers` by method (and by group id where the method names one), `errors` ({method:
[code, text]}), `hangs` ([method]: until the script is another one), `raw` ({method: hex}), `echoes` (options are the
defaults that were asked with, as the servers of Cluster Autoscaler's own wrapper send them). With server.crt,
server.key and ca.crt there, it speaks TLS and wants a client's certificate.
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
from google.protobuf import json_format

from tests.support.grpc_messages import CLASSES, METHODS
from tests.support.scripted import ScriptedServer

SERVICE = "clusterautoscaler.cloudprovider.v1.externalgrpc.CloudProvider"


class Cloud(grpc.GenericRpcHandler):
    """Answers what the script says."""

    def __init__(self, server: ScriptedServer) -> None:
        self._server = server

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[bytes, bytes] | None:
        service, _, method = str(details.method).lstrip("/").partition("/")
        if service != SERVICE or method not in METHODS:
            return None
        return grpc.unary_unary_rpc_method_handler(lambda request, context: self._answer(method, request, context))

    def _answer(self, method: str, request: bytes, context: grpc.ServicerContext) -> bytes:
        takes, gives = METHODS[method]
        asked = json_format.MessageToDict(CLASSES[takes].FromString(request))
        call = {"method": method, "asked": asked}
        script = self._server.record(call, lambda script: method in script.get("hangs", ()))
        if method in script.get("errors", {}):
            code, text = script["errors"][method]
            context.abort(grpc.StatusCode[code], text)
        if method in script.get("raw", {}):
            return bytes.fromhex(script["raw"][method])
        if method == "NodeGroupGetOptions" and script.get("echoes"):
            return _echoed(request)
        answer = script.get("answers", {}).get(method)
        if answer is None and gives != "Empty":
            context.abort(grpc.StatusCode.UNIMPLEMENTED, f"{method} is optional")
        if isinstance(answer, dict) and asked.get("id") in answer:
            answer = answer[asked["id"]]
        return bytes(json_format.ParseDict(answer or {}, CLASSES[gives]()).SerializeToString())


def _echoed(request: bytes) -> bytes:
    """With all three durations, of which those that were not given are zero."""
    answer = CLASSES["OptionsAnswer"]()
    options = answer.nodeGroupAutoscalingOptions
    options.CopyFrom(CLASSES["OptionsOf"].FromString(request).defaults)
    for field in ("scaleDownUnneededDuration", "scaleDownUnreadyDuration", "maxNodeProvisionDuration"):
        getattr(options, field).SetInParent()
    return bytes(answer.SerializeToString())


def main(folder: Path) -> None:
    scripted = ScriptedServer(folder)
    server = grpc.server(ThreadPoolExecutor(8), handlers=[Cloud(scripted)])
    certificate, key, authority = (folder / name for name in ("server.crt", "server.key", "ca.crt"))
    if certificate.exists():
        pair = [(key.read_bytes(), certificate.read_bytes())]
        credentials = grpc.ssl_server_credentials(pair, authority.read_bytes(), require_client_auth=True)
        port = server.add_secure_port("localhost:0", credentials)
    else:
        port = server.add_insecure_port("localhost:0")
    server.start()
    scripted.announce(port)
    server.wait_for_termination()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
