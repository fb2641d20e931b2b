"""The central manager: a node side, which lends what nodes leave unused, and an autoscaler, beside each other."""
