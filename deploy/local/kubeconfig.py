"""Kubeconfig files of the local cluster: one server, one user, one context."""

from collections.abc import Mapping
from pathlib import Path

import yaml

from deploy.local import private

NAME = "headroom"


def write(path: Path, server: str, token: str, ca_file: Path | None = None) -> None:
    """Writes a kubeconfig that only its owner can read.

    Over plain http, kubectl sends no bearer token, and no websocket to a URL with a password. So the path of the
    server's URL begins with the token.
    """
    write_for(path, server if ca_file else f"{server}/{token}", {"token": token}, ca_file)


def write_for(path: Path, server: str, user: Mapping[str, str], ca_file: Path | None = None) -> None:
    """Writes a kubeconfig for `user`, which has the fields of a kubeconfig user; only its owner can read the file."""
    cluster = {"server": server} | ({"certificate-authority": str(ca_file)} if ca_file else {})
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": NAME, "cluster": cluster}],
        "users": [{"name": NAME, "user": dict(user)}],
        "contexts": [{"name": NAME, "context": {"cluster": NAME, "user": NAME, "namespace": "default"}}],
        "current-context": NAME,
    }
    private.write(path, yaml.safe_dump(content, sort_keys=False))
