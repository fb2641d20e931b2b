"""A kubelet that runs pods as processes of this machine, in cgroups where it can create them."""
