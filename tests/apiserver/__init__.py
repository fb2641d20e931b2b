"""The parts of a real Kubernetes control plane: where they are found, and how they are built where they are not."""
