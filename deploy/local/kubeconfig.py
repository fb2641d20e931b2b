"""Kubeconfig files of the local cluster: one server, one user, one context."""

from pathlib import Path

import yaml

from deploy.local import private

NAME = "headroom"


def write(path: Path, server: str, token: str, ca_file: Path | None = None) -> None:
    """Writes a kubeconfig that only its owner can read."""
    private.write(path, yaml.safe_dump(content(server, token, ca_file), sort_keys=False))


def content(server: str, token: str, ca_file: Path | None = None) -> dict[str, object]:
    """A kubeconfig for whoever `token` says, at `server`; `ca_file` verifies an https one."""
    cluster = (
        {"server": server, "certificate-authority": str(ca_file)} if ca_file else {"server": _with_user(server, token)}
    )
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": NAME, "cluster": cluster}],
        "users": [{"name": NAME, "user": {"token": token}}],
        "contexts": [{"name": NAME, "context": {"cluster": NAME, "user": NAME, "namespace": "default"}}],
        "current-context": NAME,
    }


def _with_user(server: str, token: str) -> str:
    """kubectl sends no bearer token over plain http; a user in the URL it sends everywhere, and the embedded server
    takes its password for the token."""
    scheme, _, address = server.partition("://")
    return f"{scheme}://{NAME}:{token}@{address}"
