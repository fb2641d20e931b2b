"""Help for schedulers: which nodes a pod should not go to, and which it had better go to."""
