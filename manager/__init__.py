"""The central manager: turns NodeMetrics into Mid-tier capacity on Node status."""
