"""Plain HTTP to what listens on this machine."""

import httpx

from tests.support import PATIENCE_SECONDS

# One client for all calls: a new one for each would read every certificate the machine trusts, 40 ms of CPU a call.
# No connection is kept, because a server may close it just as it is used again.
LOCAL_HTTP = httpx.Client(
    verify=False, trust_env=False, timeout=PATIENCE_SECONDS, limits=httpx.Limits(max_keepalive_connections=0)
)
