"""The deep probe's gates, over an evidence folder: one question each, a case in, a score with its quotes out (PROBE-2)."""
