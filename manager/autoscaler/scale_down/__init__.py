"""Scale-down of groups that pending pods move: which nodes are needed no more, which of them go now, and why not the
others. Pure functions of plain values."""
