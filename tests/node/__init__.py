"""A real node on this machine: kubelet, containerd and runc beside a real control plane, in namespaces of their own."""
