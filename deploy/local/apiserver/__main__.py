"""`python -m deploy.local.apiserver`: serves one data directory on one loopback address until SIGTERM."""

import argparse
import asyncio
import gc
import logging
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import yaml
from starlette.types import ASGIApp

from deploy.local.apiserver import status
from deploy.local.apiserver.app import Application
from deploy.local.apiserver.bodies import How, check_object
from deploy.local.apiserver.database import UnusableData
from deploy.local.apiserver.kinds import BY_RESOURCE, CRD_GROUP
from deploy.local.apiserver.objects import JsonObject
from deploy.local.apiserver.registry import KindRegistry
from deploy.local.apiserver.store import Store
from deploy.local.apiserver.writes import Writes
from shared import descriptors, memory, yaml_file
from shared.errors import InvalidInput
from shared.web.limits import Limits
from shared.web.server import Acceptor, is_loopback, listening

logger = logging.getLogger("deploy.local.apiserver")

GARBAGE_SECONDS = 10.0
# Each node of the cluster opens several watches, and the list of all pods of a large cluster is a single response.
LIMITS = Limits(connections=8192, held_bytes=512 << 20, keep_alive_seconds=120)
_CRDS = f"{CRD_GROUP}/customresourcedefinitions"
_NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")
_PRIORITY_CLASSES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}


class UsageError(Exception):
    """The command line, or a file that it names, is unusable; the text says why."""


def parse_arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m deploy.local.apiserver", description=__doc__)
    parser.add_argument("--listen", required=True, metavar="127.0.0.1:PORT", help="loopback address; port 0: any")
    parser.add_argument("--data-dir", required=True, type=Path)
    parser.add_argument("--token-file", required=True, type=Path, help="holds the bearer token")
    parser.add_argument("--crd-dir", action="append", default=[], type=Path, help="manifests of custom kinds")
    return parser.parse_args(argv)


def bind(listen: str) -> socket.socket:
    """A listening socket on a loopback address. Raises UsageError."""
    try:
        if not is_loopback(listen):
            raise UsageError(f"--listen {listen!r}: only loopback addresses are served")
        return listening(listen)
    except InvalidInput as error:
        raise UsageError(f"--listen {listen!r}: {error.problem}") from None


def read_token(path: Path) -> str:
    try:
        token = path.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise UsageError(f"--token-file {path}: {error.strerror}") from error
    if not token:
        raise UsageError(f"--token-file {path}: it is empty")
    return token


def read_definitions(directories: Sequence[Path]) -> Iterator[JsonObject]:
    """The CustomResourceDefinitions in the directories' YAML files. Raises UsageError."""
    for directory in directories:
        if not directory.is_dir():
            raise UsageError(f"--crd-dir {directory}: no such directory")
        for path in sorted(directory.glob("*.y*ml")):
            try:
                documents = list(yaml_file.documents(path.read_text(encoding="utf-8")))
            except (OSError, yaml.YAMLError) as error:
                raise UsageError(f"--crd-dir {path}: {error}") from error
            for document in documents:
                if isinstance(document, dict) and document.get("kind") == "CustomResourceDefinition":
                    yield document


def install(store: Store, kinds: KindRegistry, writes: Writes, definitions: Sequence[JsonObject]) -> None:
    """Creates the missing initial objects and the custom kinds; updates existing kinds. Raises StatusError."""
    for record in store.ordered(_CRDS):
        kinds.define(record.load())
    for name in _NAMESPACES:
        _ensure(store, writes, "/namespaces", {"metadata": {"name": name}})
    for name, value in _PRIORITY_CLASSES.items():
        body = {"metadata": {"name": name}, "value": value}
        _ensure(store, writes, "scheduling.k8s.io/priorityclasses", body)
    for definition in definitions:
        _ensure(store, writes, _CRDS, definition)


def _ensure(store: Store, writes: Writes, resource: str, body: JsonObject) -> None:
    kind = BY_RESOURCE[resource]
    obj = check_object(body, kind, "")
    name = obj["metadata"]["name"]
    if store.get(resource, name) is None:
        writes.create(kind, "", obj, How())
    elif resource == _CRDS:
        writes.update(kind, "", name, lambda old: old | {"spec": obj["spec"]}, How())


async def collect_garbage() -> None:
    """Frees cycles (tracebacks, finished tasks) every few seconds instead of during requests."""
    while True:
        await asyncio.sleep(GARBAGE_SECONDS)
        gc.collect()


async def serve(arguments: argparse.Namespace, wrapped: Callable[[Application], ASGIApp]) -> None:
    """Runs until SIGTERM or SIGINT. Raises UsageError, UnusableData."""
    token, definitions = read_token(arguments.token_file), list(read_definitions(arguments.crd_dir))
    listener = bind(arguments.listen)
    kinds = KindRegistry()
    store = Store(arguments.data_dir, kinds.fields)
    app = Application(store, kinds, token)
    try:
        install(store, kinds, app.writes, definitions)
    except status.StatusError as error:
        raise UsageError(f"--crd-dir: {error}") from error
    app.start()
    # Reference counts free what requests allocate: the search for cycles need not run often, and never needs to include
    # the loaded modules.
    gc.freeze()
    gc.disable()
    server = Acceptor(wrapped(app), listener, LIMITS)

    def stop() -> None:
        server.stop()
        app.stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop)
    host, port = listener.getsockname()[:2]
    print(f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}", flush=True)
    collector = asyncio.create_task(collect_garbage())
    await server.serve()
    collector.cancel()
    await app.close()
    store.close()


def main(wrapped: Callable[[Application], ASGIApp] = lambda app: app) -> int:
    """Serves the application, or the application that `wrapped` returns."""
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    descriptors.raise_limit()
    memory.return_large_blocks()
    try:
        asyncio.run(serve(parse_arguments(sys.argv[1:]), wrapped))
    except (UsageError, UnusableData) as error:
        print(f"apiserver: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
