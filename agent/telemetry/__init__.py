"""What the agent shows to Prometheus, read when it is scraped."""
