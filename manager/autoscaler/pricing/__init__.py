"""What machines and pods cost by the hour; any currency will do, since only ratios are compared."""
