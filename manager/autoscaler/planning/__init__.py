"""The plan of one iteration: the decisions of the rooms below, in their order, on one view."""
