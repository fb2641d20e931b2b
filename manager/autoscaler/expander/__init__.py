"""Which of several ways to scale up is taken."""
