"""The embedded cluster: API server, scheduler, kubelet and simulated nodes on one machine."""
