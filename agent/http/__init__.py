"""The agent's endpoints: probes and metrics at once, the API with the first request for it."""
