"""The cluster as the scheduler sees it: pods and nodes as arrays, and the reasons that exclude a node."""
