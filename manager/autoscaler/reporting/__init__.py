"""The reports of an iteration: API, metrics, Events, status ConfigMap and decision log."""
