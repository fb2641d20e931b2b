"""The file that `--cloud-config` names.

address: provider.example:8086
key: /etc/cloud/tls.key       # of the client's certificate
cert: /etc/cloud/tls.crt
cacert: /etc/cloud/ca.crt     # authority of the server's certificate; empty: the system's
grpc_timeout: 5s
all_groups: false             # whether each group that the server lists is to be scaled
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from manager.autoscaler.cloudprovider.externalgrpc.channel import (
    ChannelTls,
    authorities_problem,
    certificate_problem,
    is_address,
)
from shared import durations, yaml_file
from shared.errors import InvalidInput

MAX_TIMEOUT_SECONDS = 600.0  # of one call


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    address: Annotated[str, Meta(min_length=1)]
    key: str = ""
    cert: str = ""
    cacert: str = ""
    grpc_timeout: str | float = 5.0
    all_groups: bool = False


@dataclass(frozen=True, slots=True)
class GrpcConfig:
    """The server, and the timeout of a call. Without `tls` nothing is encrypted."""

    address: str
    tls: ChannelTls | None = None
    timeout_seconds: float = 5.0


def scales_all_groups(path: Path) -> bool:
    """Without the files that it names. Raises InvalidInput."""
    return yaml_file.load(path, _File).all_groups


def load(path: Path) -> GrpcConfig:
    """Raises InvalidInput that names file, field and value."""
    file = yaml_file.load(path, _File)

    def refused(field: str, value: object, problem: str) -> InvalidInput:
        return InvalidInput(source=str(path), field=field, value=value, problem=problem)

    def pem(field: str, name: str) -> bytes | None:
        try:
            return Path(name).read_bytes() if name else None
        except OSError as error:
            raise refused(field, name, error.strerror or str(error)) from error

    try:
        timeout = _timeout_seconds(file.grpc_timeout)
    except ValueError as error:
        raise refused("grpc_timeout", file.grpc_timeout, str(error)) from error
    if not is_address(file.address):
        raise refused("address", file.address, "expected host:port")
    if bool(file.key) != bool(file.cert):
        field = "cert" if file.key else "key"
        raise refused(field, "", "set both the certificate and its key")
    if not (file.cert or file.cacert):
        return GrpcConfig(file.address, None, timeout)
    tls = ChannelTls(pem("cacert", file.cacert), pem("cert", file.cert), pem("key", file.key))
    if file.cacert and (problem := authorities_problem(file.cacert)):
        raise refused("cacert", file.cacert, f"no certificates in PEM: {problem}")
    if file.cert and (problem := certificate_problem(file.cert, file.key)):
        raise refused("cert", file.cert, f"no certificate in PEM with its key: {problem}")
    return GrpcConfig(file.address, tls, timeout)


def _timeout_seconds(given: str | float) -> float:
    """Seconds that one call may take, of a duration or a number of them. Raises ValueError."""
    seconds = durations.parse(given) if isinstance(given, str) else given
    if not 0 < seconds <= MAX_TIMEOUT_SECONDS:
        raise ValueError(f"not within {MAX_TIMEOUT_SECONDS:g} s, or none")
    return seconds
