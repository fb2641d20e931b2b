"""The common base of agent and manager: names, quantities, wire types, Kubernetes access, settings, telemetry."""
