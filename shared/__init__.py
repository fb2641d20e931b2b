"""The ground under agent and manager: words, quantities, wire types, Kubernetes access, settings, telemetry."""
