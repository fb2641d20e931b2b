"""The API server's address and our credentials: from the cluster, or from a kubeconfig."""

import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Protocol, TypeVar

import msgspec

from shared.errors import InvalidInput

S = TypeVar("S", bound=msgspec.Struct)

SERVICE_ACCOUNT_DIR = Path("/var/run/secrets/kubernetes.io/serviceaccount")
DEFAULT_KUBECONFIG = "~/.kube/config"


class Credentials(Protocol):
    """Supplies the Authorization header; called from any thread, before every request."""

    def authorization(self) -> str | None:
        """The header's value, or None with a client certificate or as an anonymous client."""
        ...

    def renew(self) -> None:
        """The server refused the last header: get another one, if possible."""
        ...


@dataclass(frozen=True)
class StaticToken:
    """A bearer token that never changes; None is anonymous."""

    token: str | None = field(default=None, repr=False)

    def authorization(self) -> str | None:
        return f"Bearer {self.token}" if self.token else None

    def renew(self) -> None:
        """A static token has no replacement."""


class TokenFile:
    """A bearer token in a file that changes while we run; the kubelet replaces it every hour.

    The file is read again whenever its identity changes; while it is missing or empty (in the middle of a replacement)
    the last good token is used.
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
            pass  # in the middle of a replacement, or unreadable for now: the last good token may still work
        return f"Bearer {self._token}" if self._token else None

    def renew(self) -> None:
        self._seen = None


@dataclass(frozen=True)
class Connection:
    """One API server and how to reach it. `server` may carry a path, as behind Rancher.

    `cluster_name` is its name in a kubeconfig.
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
    """The connection that every pod has, or None outside of a pod."""
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
    files = (path or os.environ.get("KUBECONFIG") or DEFAULT_KUBECONFIG).split(os.pathsep)
    if not any(each and Path(each).expanduser().exists() for each in files):
        where = "the command line" if path else "KUBECONFIG" if os.environ.get("KUBECONFIG") else "the default"
        problem = f"there is no such file ({where} names it): --kubeconfig FILE or KUBECONFIG names another"
        raise InvalidInput(source="kubeconfig", field="file", value=os.pathsep.join(files), problem=problem)
    user = _KubeconfigUser(path or os.environ.get("KUBECONFIG") or DEFAULT_KUBECONFIG, context)
    return replace(user.kubeconfig.connection, credentials=user)


def discover(kubeconfig: str | None = None, context: str | None = None) -> Connection:
    """An explicit kubeconfig, else the cluster we run in, else the user's kubeconfig. Raises InvalidInput."""
    if kubeconfig or context:
        return from_kubeconfig(kubeconfig, context)
    return in_cluster() or from_kubeconfig()


def _without_secrets(server: str, authorization: str | None) -> str:
    """`server` without a "user:password@" and without the user's own token as its path, which would show in logs.

    Credentials come from the user's own entry.
    """
    scheme, separator, rest = server.partition("://")
    authority, slash, path = rest.partition("/")
    bare = scheme + separator + authority.rpartition("@")[2] + slash + path
    return bare.removesuffix("/" + authorization.removeprefix("Bearer ")) if authorization else bare


class _KubeconfigUser:
    """The credentials of a kubeconfig, which is read again when the server refuses them."""

    def __init__(self, path: str, context: str | None) -> None:
        self._path = path
        self._context = context
        self._lock = threading.Lock()  # one exec plugin at a time: some of them open a browser
        self.kubeconfig = _load(path, context)

    def authorization(self) -> str | None:
        with self._lock:
            return self.kubeconfig.authorization()

    def renew(self) -> None:
        with self._lock:
            self.kubeconfig = _load(self._path, self._context)


@dataclass(frozen=True)
class _Kubeconfig:
    """The chosen context of a kubeconfig; `authorization` may run a plugin or replace a token."""

    connection: Connection
    authorization: Callable[[], str | None]


def _load(path: str, context: str | None) -> _Kubeconfig:
    return _with_a_token(path, context) or _by_the_official_client(path, context)


class _Cluster(msgspec.Struct, forbid_unknown_fields=True, rename="kebab"):
    server: str
    certificate_authority: str = ""


class _User(msgspec.Struct, forbid_unknown_fields=True):
    token: Annotated[str, msgspec.Meta(min_length=1)]


class _Context(msgspec.Struct, forbid_unknown_fields=True):
    cluster: str
    user: str
    namespace: str = ""


def _with_a_token(path: str, context: str | None) -> _Kubeconfig | None:
    """A single file with a server, a token, and optionally a certificate authority's file; None for any other file.

    The official client takes half a second and 60 MB to import. This reader saves that in every process of a local
    cluster.
    """
    import yaml

    from shared import yaml_file

    file = Path(path).expanduser()
    try:
        document = yaml_file.parse(file.read_text("utf-8"))
        chosen = _named(document, "context", context or document["current-context"], _Context)
        cluster = _named(document, "cluster", chosen.cluster, _Cluster)
        token = _named(document, "user", chosen.user, _User).token
    except (OSError, ValueError, LookupError, TypeError, yaml.YAMLError):
        return None  # the official client reads it, or reports what is wrong
    ca_file = str(file.parent / cluster.certificate_authority) if cluster.certificate_authority else None
    authorization = StaticToken(token).authorization
    server = _without_secrets(cluster.server, authorization())
    return _Kubeconfig(Connection(server, ca_file=ca_file, cluster_name=chosen.cluster), authorization)


def _named(document: Any, kind: str, name: str, into: type[S]) -> S:
    (found,) = (each[kind] for each in document[f"{kind}s"] if each["name"] == name)
    return msgspec.convert(found, into)


def _by_the_official_client(path: str, context: str | None) -> _Kubeconfig:
    # Imported here: no process in a cluster needs it, and the images do not have it.
    try:
        from kubernetes import client, config
    except ModuleNotFoundError as error:
        problem = f"to read more than a token, it needs the package {error.name}, which is not installed"
        raise InvalidInput(source="kubeconfig", field="file", value=path, problem=problem) from error
    from yaml import YAMLError

    found = client.Configuration()
    try:
        config.load_kube_config(path, context, found, persist_config=False)
        contexts, current = config.list_kube_config_contexts(path)
    except (config.ConfigException, YAMLError, OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        # The last three are the official loader's errors for a file of another shape.
        raise InvalidInput(
            source="kubeconfig", field=context or "current-context", value=path, problem=str(error)
        ) from error
    chosen = current if context is None else next(each for each in contexts if each["name"] == context)
    connection = Connection(
        server=_without_secrets(found.host, next(iter(found.api_key.values()), None)),
        ca_file=found.ssl_ca_cert,
        client_cert_file=found.cert_file,
        client_key_file=found.key_file,
        verify=found.verify_ssl,
        tls_server_name=found.tls_server_name,
        cluster_name=str(chosen["context"]["cluster"]),
    )
    # Version 36 of the official client renamed the key; the alias serves earlier versions.
    return _Kubeconfig(connection, lambda: found.get_api_key_with_prefix("BearerToken", alias="authorization"))
