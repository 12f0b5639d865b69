"""Measured promises, as ratios within one run. `make bench` runs them all; each module runs alone too."""
