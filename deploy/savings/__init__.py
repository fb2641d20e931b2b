"""What a cluster could save: recommended requests, stages of savings, and the prices behind both."""
