"""The manager with real Karpenter, on a real API server."""
