"""TLS of the agent's port: with a self-made certificate, like a kubelet's, or with one from files."""

import logging
import subprocess
import sys
from pathlib import Path

import msgspec

from agent.settings import AgentSettings
from shared.clock import Clock
from shared.errors import InvalidInput
from shared.web.tls import Tls

logger = logging.getLogger(__name__)

CERTIFICATE, KEY = "tls.crt", "tls.key"
LOOK_SECONDS = 10.0
RENEW_SECONDS = 240 * 86_400.0  # two thirds of a certificate's life
MAKING_SECONDS = 60.0


class _Made(msgspec.Struct, frozen=True):
    chain: str
    key: str


class AgentCertificate:
    """`turn` keeps `tls` valid. Raises InvalidInput when there is no certificate at the start."""

    def __init__(self, settings: AgentSettings, clock: Clock) -> None:
        self.tls = Tls()
        self._node_name = settings.node_name
        self._directory = Path(settings.tls_certificate_directory) if settings.tls == "files" else None
        if settings.tls == "files" and not settings.tls_certificate_directory:
            raise InvalidInput(
                source="settings", field="tlsCertificateDirectory", value="", problem="has to be set with tls: files"
            )
        self._clock = clock
        self._made_at: float | None = None
        self._read: tuple[bytes, bytes] | None = None
        self._said = ""
        if self._directory is None:
            self.turn()

    def turn(self) -> None:
        """Renews or reloads the certificate when due. Logs a failure once, and keeps the previous certificate."""
        try:
            if self._directory is None:
                self._renew()
            else:
                self._follow(self._directory)
            self._said = ""
        except (InvalidInput, OSError, subprocess.SubprocessError, msgspec.MsgspecError) as error:
            if str(error) != self._said:
                logger.warning("serving certificate: %s", error)
            self._said = str(error)

    def _renew(self) -> None:
        now = self._clock.monotonic()
        if self._made_at is not None and now - self._made_at < RENEW_SECONDS:
            return
        # In a separate process: OpenSSL's bindings would take 14 MB for as long as the agent lives.
        command = [sys.executable, "-m", "shared.certificates", self._node_name or "headroom-agent"]
        done = subprocess.run(command, capture_output=True, check=True, timeout=MAKING_SECONDS)
        made = msgspec.json.decode(done.stdout, type=_Made)
        self.tls.install(made.chain.encode(), made.key.encode(), source="agent")
        self._made_at = now

    def _follow(self, directory: Path) -> None:
        chain, key = (directory / CERTIFICATE).read_bytes(), (directory / KEY).read_bytes()
        if (chain, key) != self._read:
            self.tls.install(chain, key, source=str(directory / CERTIFICATE))
            self._read = (chain, key)
            logger.info("serving certificate read", extra={"file": str(directory / CERTIFICATE)})
