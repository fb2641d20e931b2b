"""TLS whose certificate can be replaced while it serves: handshakes take the newest one, connections keep theirs."""

import os
import ssl
import threading

from shared.errors import InvalidInput


class Tls:
    """`context` is for the server. As long as nothing was installed, every handshake fails.

    With `asks_clients` a client may prove who it is, by a certificate of the authorities that are trusted.
    """

    def __init__(self, *, asks_clients: bool = False) -> None:
        self._asks_clients = asks_clients
        self._lock = threading.RLock()  # what is installed and whom to trust change in different threads
        self._authorities = ""
        self._installed: tuple[bytes, bytes] | None = None
        self._current: ssl.SSLContext | None = None
        self.context = self._new_context()
        self.context.sni_callback = self._choose

    def install(self, chain: bytes, key: bytes, *, source: str) -> None:
        """Serves this certificate from the next handshake on. Raises InvalidInput, and then the one before stays."""
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
        """Believes clients' certificates of these (PEM) from now on. Raises InvalidInput, and believes those before."""
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
            # A resumed session would remember a client that is not trusted any more.
            context.verify_mode = ssl.CERT_OPTIONAL
            context.options |= ssl.OP_NO_TICKET
            context.num_tickets = 0
            if self._authorities:
                context.load_verify_locations(cadata=self._authorities)
        return context

    def _choose(
        self, connection: ssl.SSLSocket | ssl.SSLObject, name: str | None, context: ssl.SSLContext
    ) -> int | None:
        """Called in each handshake, also for clients that name no host."""
        if self._current is None:
            return int(ssl.AlertDescription.ALERT_DESCRIPTION_INTERNAL_ERROR)
        connection.context = self._current
        return None


class _Readable:
    """Bytes as a file for OpenSSL, which the root of a container, being read-only, has no place for."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    def __enter__(self) -> str:
        self._file = os.memfd_create("pem")
        os.write(self._file, self._content)
        return f"/proc/self/fd/{self._file}"

    def __exit__(self, *_: object) -> None:
        os.close(self._file)


def _no_password() -> str:
    """An encrypted key is an error, not a question on the terminal."""
    return ""
