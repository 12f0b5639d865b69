"""Real servers for whole stories."""

from tests.labs import slurm_lab, slurm_lab_b  # noqa: F401  fixtures
from tests.postgres import postgres, postgres_url  # noqa: F401  fixtures
