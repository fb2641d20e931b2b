"""TLS with a certificate that can be replaced while serving: new handshakes use the newest, connections keep theirs."""

import os
import ssl
import threading
from asyncio import sslproto

from shared.errors import InvalidInput

# asyncio reads into a buffer of this size for each connection, also for one that never sends anything: 256 KiB by
# default. A TLS record has 16 KiB at most.
sslproto.SSLProtocol.max_size = 16 << 10


class Tls:
    """`context` is for the server. Every handshake fails until a certificate is installed.

    With `asks_clients` a client may authenticate by a certificate of a trusted authority.
    """

    def __init__(self, *, asks_clients: bool = False) -> None:
        self._asks_clients = asks_clients
        self._lock = threading.RLock()  # different threads change the certificate and the trusted authorities
        self._authorities = ""
        self._installed: tuple[bytes, bytes] | None = None
        self._current: ssl.SSLContext | None = None
        self.context = self._new_context()
        self.context.sni_callback = self._choose

    def install(self, chain: bytes, key: bytes, *, source: str) -> None:
        """Serves this certificate from the next handshake on. Raises InvalidInput, and then keeps the previous one."""
        with self._lock:
            context = self._new_context()
            try:
                with _Readable(chain) as chain_file, _Readable(key) as key_file:
                    context.load_cert_chain(chain_file, key_file, password=_no_password)
            except (ValueError, OSError) as error:  # ssl.SSLError is an OSError
                problem = f"not a certificate and its key: {error}"
                raise InvalidInput(source=source, field="certificate", value="...", problem=problem) from error
            self._current, self._installed = context, (chain, key)

    def trust(self, authorities: str, *, source: str) -> None:
        """Accepts client certificates of these authorities (PEM) from now on. Raises InvalidInput; the old ones then
        stay.
        """
        with self._lock:
            if authorities == self._authorities:
                return
            before, self._authorities = self._authorities, authorities
            try:
                self._new_context()
                if self._installed is not None:
                    self.install(*self._installed, source=source)
            except (ssl.SSLError, ValueError) as error:
                self._authorities = before
                problem = f"no certificates of authorities: {error}"
                raise InvalidInput(source=source, field="certificate", value="...", problem=problem) from error

    def _new_context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if self._asks_clients:
            # A resumed session would remember a client that is no longer trusted.
            context.verify_mode = ssl.CERT_OPTIONAL
            context.options |= ssl.OP_NO_TICKET
            context.num_tickets = 0
            if self._authorities:
                context.load_verify_locations(cadata=self._authorities)
        return context

    def _choose(
        self, connection: ssl.SSLSocket | ssl.SSLObject, name: str | None, context: ssl.SSLContext
    ) -> int | None:
        """Called in each handshake, also for clients that send no host name."""
        if self._current is None:
            return int(ssl.AlertDescription.ALERT_DESCRIPTION_INTERNAL_ERROR)
        connection.context = self._current
        return None


class _Readable:
    """Bytes as a file for OpenSSL, because the read-only root of a container has no place for one."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    def __enter__(self) -> str:
        self._file = os.memfd_create("pem")
        os.write(self._file, self._content)
        return f"/proc/self/fd/{self._file}"

    def __exit__(self, *_: object) -> None:
        os.close(self._file)


def _no_password() -> str:
    """Makes an encrypted key an error instead of a question on the terminal."""
    return ""
