"""Where the API server is and how to prove who we are: in a cluster, or by a kubeconfig."""

import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from shared.errors import InvalidInput

if TYPE_CHECKING:
    from kubernetes.client import Configuration

SERVICE_ACCOUNT_DIR = Path("/var/run/secrets/kubernetes.io/serviceaccount")
DEFAULT_KUBECONFIG = "~/.kube/config"


class Credentials(Protocol):
    """Supplies the Authorization header; called from any thread, before every request."""

    def authorization(self) -> str | None:
        """The header's value, or None where a client certificate (or nobody) speaks for us."""
        ...

    def renew(self) -> None:
        """The server refused the last header: get another one if there is a way to."""
        ...


@dataclass(frozen=True)
class StaticToken:
    """A bearer token that never changes; None stays anonymous."""

    token: str | None = field(default=None, repr=False)

    def authorization(self) -> str | None:
        return f"Bearer {self.token}" if self.token else None

    def renew(self) -> None:
        """There is no other one."""


class TokenFile:
    """A bearer token in a file that is replaced while we run, as the kubelet does every hour.

    The file is read again whenever its identity changes; while it is missing or empty (in the middle of a
    replacement) the last good token is used.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, int, int] | None = None
        self._token = ""
        self.authorization()
        if not self._token:
            raise InvalidInput(source=str(path), field="token", value="", problem="no token can be read")

    def authorization(self) -> str | None:
        try:
            stat = self._path.stat()
            seen = (stat.st_ino, stat.st_mtime_ns, stat.st_size)
            if seen != self._seen:
                self._token = self._path.read_text("ascii").strip() or self._token
                self._seen = seen
        except (OSError, UnicodeDecodeError):
            pass  # in the middle of a replacement, or unreadable for now: the last good token may still do
        return f"Bearer {self._token}" if self._token else None

    def renew(self) -> None:
        self._seen = None


@dataclass(frozen=True)
class Connection:
    """One API server and how to speak to it. `server` may carry a path, as behind Rancher.

    `cluster_name` is what a kubeconfig calls it.
    """

    server: str
    credentials: Credentials = StaticToken()
    ca_file: str | None = None
    client_cert_file: str | None = None
    client_key_file: str | None = None
    verify: bool = True
    tls_server_name: str | None = None
    cluster_name: str = ""


def in_cluster(*, root: Path = SERVICE_ACCOUNT_DIR, environ: Mapping[str, str] = os.environ) -> Connection | None:
    """The connection every pod is given, or None outside of a pod."""
    host, port = environ.get("KUBERNETES_SERVICE_HOST"), environ.get("KUBERNETES_SERVICE_PORT")
    if not (host and port and (root / "token").exists()):
        return None
    return Connection(
        server=f"https://{f'[{host}]' if ':' in host else host}:{port}",
        credentials=TokenFile(root / "token"),
        ca_file=str(root / "ca.crt"),
    )


def from_kubeconfig(path: str | None = None, context: str | None = None) -> Connection:
    """The connection of a kubeconfig's (current) context, exec plugins and inline certificates included.

    `path` defaults to $KUBECONFIG, which may name several files, then to ~/.kube/config. Raises InvalidInput.
    """
    user = _KubeconfigUser(path or os.environ.get("KUBECONFIG") or DEFAULT_KUBECONFIG, context)
    found = user.configuration
    return Connection(
        server=_without_userinfo(found.host),
        credentials=user,
        ca_file=found.ssl_ca_cert,
        client_cert_file=found.cert_file,
        client_key_file=found.key_file,
        verify=found.verify_ssl,
        tls_server_name=found.tls_server_name,
        cluster_name=_cluster_name(path, context),
    )


def discover(kubeconfig: str | None = None, context: str | None = None) -> Connection:
    """An explicit kubeconfig, else the cluster we run in, else the user's kubeconfig. Raises InvalidInput."""
    if kubeconfig or context:
        return from_kubeconfig(kubeconfig, context)
    return in_cluster() or from_kubeconfig()


def _without_userinfo(server: str) -> str:
    """`server` without a "user:password@", which would show in logs; the user's own entry is what counts here."""
    scheme, separator, rest = server.partition("://")
    authority, slash, path = rest.partition("/")
    return scheme + separator + authority.rpartition("@")[2] + slash + path


class _KubeconfigUser:
    """The credentials of a kubeconfig; the official client runs exec plugins and replaces expired tokens."""

    def __init__(self, path: str, context: str | None) -> None:
        self._path = path
        self._context = context
        self._lock = threading.Lock()  # one exec plugin at a time: some of them open a browser
        self.configuration = _load(path, context)

    def authorization(self) -> str | None:
        with self._lock:
            # The key was renamed in version 36 of the official client; the alias serves the ones before.
            header: str | None = self.configuration.get_api_key_with_prefix("BearerToken", alias="authorization")
        return header

    def renew(self) -> None:
        with self._lock:
            self.configuration = _load(self._path, self._context)


def _cluster_name(path: str | None, context: str | None) -> str:
    """What a kubeconfig that could be loaded calls the cluster of the (current) context."""
    from kubernetes import config

    contexts, current = config.list_kube_config_contexts(path or os.environ.get("KUBECONFIG") or DEFAULT_KUBECONFIG)
    chosen = current if context is None else next(each for each in contexts if each["name"] == context)
    return str(chosen["context"]["cluster"])


def _load(path: str, context: str | None) -> "Configuration":
    # Imported here: it takes a quarter of a second and 60 MB, and no process in a cluster needs it.
    from kubernetes import client, config
    from yaml import YAMLError

    configuration = client.Configuration()
    try:
        config.load_kube_config(path, context, configuration, persist_config=False)
    except (config.ConfigException, YAMLError, OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        # The last three are how the official loader meets a file of another shape.
        raise InvalidInput(
            source="kubeconfig", field=context or "current-context", value=path, problem=str(error)
        ) from error
    return configuration
