"""What a deep probe asks of a Slurm cluster, on one page. All of it only reads; a step that it runs in a job shares everything.

The frame is that of ``slurm_commands``; every value passes :func:`quoted(…)` there. What runs on the compute node itself stands
in ``node_commands`` and is handed over as one argument.
"""

from __future__ import annotations

import math

from supervisor.clusters.slurm_commands import UNIT, Nonce, Site, columns, opening

STEP_NAME = "supervisor-look"
"""What our own steps are called in the job's accounting."""
ACCOUNTING_SHOWN = (
    "JobID,JobName,State,ExitCode,DerivedExitCode,Submit,Start,End,Elapsed,AllocTRES,MaxRSS,NNodes,NodeList,Reason"
)
REMAINS_FIELDS = ("JobArrayID", "SubmitTime", "State", "JobID", "NodeList")

_RECORDS = r"""
SLURM_TIME_FORMAT=standard
part record "$queue_s" scontrol --local show job -d "$job"
part accounting "$accounting_s" sacct --local -D -P -j "$job" -o "$shown"
part script "$queue_s" sh -c 'scontrol write batch_script "$1" - | head -c "$2"' sh "$job" "$bytes"
whole
"""

_REMAINS = r"""
part queue "$queue_s" squeue --local -a -t all -j "$ask" -O "$remains_fields"
part steps "$queue_s" squeue --local -a -s -j "$ask" -o '%i %N %j'
whole
"""

_BY_SRUN = r"""
for name in $(env | sed -n -e 's/^\(SLURM_[A-Za-z0-9_]*\)=.*/\1/p' -e 's/^\(SRUN_[A-Za-z0-9_]*\)=.*/\1/p'); do
  case $name in SLURM_CONF | SLURM_CONF_SERVER | SLURM_JWT) ;; *) unset "$name" ;; esac
done
part node "$limit_s" srun --jobid="$job" $het --nodelist="$node" --nodes=1 --ntasks=1 $sharing --mem=0 --immediate=10 \
  --time="$minutes" --job-name="$step" --mpi=none --cpu-bind=none --input=none --quiet /bin/sh -c "$look"
whole
"""
"""``--overlap``: the step holds nothing back from the job's own steps. It ends by itself, by its time limit, or with srun.

What a login sets for ``srun`` (labels before each line, files for its output, shares of devices) does not count here."""

_BY_SSH = r"""
part node "$limit_s" sh -c "$over_ssh" sh "$node" "$look"
whole
"""

_OVER_SSH = r"""
printf '%s\n' "$2" | ssh -T -x -a -o BatchMode=yes -o ConnectTimeout=10 -o ServerAliveInterval=5 -o ServerAliveCountMax=3 \
  -o ClearAllForwardings=yes -o LogLevel=ERROR "$1" 'exec /bin/sh -s'
"""


def records_script(nonce: Nonce, job: str, bytes_most: int, site: Site) -> str:
    """Record, accounting and batch script of one job, times in UTC."""
    values = {"job": job, "shown": ACCOUNTING_SHOWN, "bytes": str(int(bytes_most))}
    return opening(nonce, site, **values) + _RECORDS


def remains_script(nonce: Nonce, ask: str, site: Site) -> str:
    """``ask``: the number of the job or of its array."""
    fields = columns(REMAINS_FIELDS, UNIT, nonce.end)
    return opening(nonce, site, ask=ask, remains_fields=fields) + _REMAINS


def step_script(
    nonce: Nonce, *, job: str, het: str, node: str, look: str, limit_s: float, sharing: str, site: Site
) -> str:
    """A look at one node by a step of the job. ``sharing``: how it shares, in words of this version of srun."""
    values = {
        "job": job,
        "het": f"--het-group={het}" if het else "",
        "node": node,
        "look": look,
        "limit_s": str(math.ceil(limit_s)),
        "minutes": str(math.ceil(limit_s / 60) + 1),
        "sharing": sharing,
        "step": STEP_NAME,
    }
    return opening(nonce, site, **values) + _BY_SRUN


def ssh_script(nonce: Nonce, *, node: str, look: str, limit_s: float, site: Site) -> str:
    """A look at one node from the login node by ssh, as the login's ssh configuration has it."""
    values = {"node": node, "look": look, "limit_s": str(math.ceil(limit_s)), "over_ssh": _OVER_SSH}
    return opening(nonce, site, **values) + _BY_SSH
