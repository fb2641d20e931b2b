"""The agent's endpoints: probes and metrics at once, the API from its first request on."""
