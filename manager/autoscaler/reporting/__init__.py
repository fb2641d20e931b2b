"""What is told of a round: in the API, metrics, Events, the status ConfigMap and the journal."""
