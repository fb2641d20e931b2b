"""The cost of machines and pods per hour; any currency works, because only ratios are compared."""
