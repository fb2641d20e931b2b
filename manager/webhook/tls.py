"""TLS whose certificate can be replaced while it serves: handshakes take the newest one, connections keep theirs."""

import os
import ssl

from cryptography import x509

from shared.errors import InvalidInput


class Tls:
    """`context` is for the server. As long as nothing was installed, every handshake fails."""

    def __init__(self) -> None:
        self.context = _context()
        self.context.sni_callback = self._choose
        self.expires_at: float | None = None
        self._current: ssl.SSLContext | None = None

    def install(self, chain: bytes, key: bytes, *, source: str) -> None:
        """Serves this certificate from the next handshake on. Raises InvalidInput, and then the one before stays."""
        context = _context()
        try:
            expires_at = x509.load_pem_x509_certificates(chain)[0].not_valid_after_utc.timestamp()
            with _Readable(chain) as chain_file, _Readable(key) as key_file:
                context.load_cert_chain(chain_file, key_file, password=_no_password)
        except (ValueError, OSError) as error:  # ssl.SSLError is an OSError
            problem = f"not a certificate and its key: {error}"
            raise InvalidInput(source=source, field="certificate", value="...", problem=problem) from error
        self._current, self.expires_at = context, expires_at

    def _choose(
        self, connection: ssl.SSLSocket | ssl.SSLObject, name: str | None, context: ssl.SSLContext
    ) -> int | None:
        """Called in each handshake, also for clients that name no host."""
        if self._current is None:
            return int(ssl.AlertDescription.ALERT_DESCRIPTION_INTERNAL_ERROR)
        connection.context = self._current
        return None


class _Readable:
    """Bytes as a file for OpenSSL, which the root of the manager's container, being read-only, has no place for."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    def __enter__(self) -> str:
        self._file = os.memfd_create("pem")
        os.write(self._file, self._content)
        return f"/proc/self/fd/{self._file}"

    def __exit__(self, *_: object) -> None:
        os.close(self._file)


def _context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def _no_password() -> str:
    """An encrypted key is an error, not a question on the terminal."""
    return ""
