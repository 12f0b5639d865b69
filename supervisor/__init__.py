"""Fleet Supervisor: watches training and evaluation jobs on many clusters, and kills none without a person's approval."""

__version__ = "0.1.0"
