"""Knowledge kept as data: limits, log signatures, metric names."""
