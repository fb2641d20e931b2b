"""What was asked for beside what is there, from one round to the next."""
