"""Service-account tokens of the pods on this node: asked for once, renewed long before they end."""

from deploy.local.kubelet.sources import Sources, Token
from deploy.local.kubelet.wire import RunnablePod, TokenProjection

RENEW_AT = 0.8  # of a token's life
RENEW_SECONDS = 24 * 3600.0  # however long it would live


def renew_at(token: Token) -> float:
    """When the next token is to be asked for, in Unix seconds."""
    return min(token.issued_at + RENEW_AT * (token.expires_at - token.issued_at), token.issued_at + RENEW_SECONDS)


class Tokens:
    """The tokens of one pod, by what it asked for."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._held: dict[tuple[str, int], Token] = {}

    def current(self, pod: RunnablePod, wanted: TokenProjection, now: float) -> Token:
        """The token in use; past its renewal time a new one. Raises HeadroomError when there is none that is good."""
        key = (wanted.audience, wanted.expiration_seconds)
        held = self._held.get(key)
        if held is None or now >= renew_at(held):
            held = self._held[key] = self._sources.token(pod, wanted.audience, wanted.expiration_seconds, now)
        return held

    def next_renewal(self) -> float:
        """When the first of them is to be renewed, in Unix seconds; infinity when there is none."""
        return min(map(renew_at, self._held.values()), default=float("inf"))
