"""Running pods of Mid and Batch whose resource fell below what they hold: said, and on request ended, in order."""
