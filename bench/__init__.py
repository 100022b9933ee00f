"""Measurements of speed and memory, as ratios inside one run. Not tests: a busy machine changes times."""
