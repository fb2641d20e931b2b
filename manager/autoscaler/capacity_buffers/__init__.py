"""CapacityBuffers: room kept free for pods that do not exist yet, as virtual pods that come after all real ones."""
