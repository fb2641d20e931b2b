"""How many new nodes the pending pods need."""
