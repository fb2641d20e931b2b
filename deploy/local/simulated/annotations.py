"""Annotations of simulated nodes and their pods."""

USAGE_CURVE = "headroom.io/usage-curve"  # on a pod: CURVE or CURVE:SEED
AGENT_ADDRESS = "headroom.io/agent-address"  # on a Node: HOST:PORT of its agent's endpoints
