"""The agent's Prometheus metrics, computed at each scrape."""
