"""What is captured of a situation: the text forms of the on-node page, filled in from what the table says is true."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from supervisor.model.probe import Captured, CaptureWanted, Role
from tests.scripted_captures import captures
from tests.stories import voices

if TYPE_CHECKING:
    from tests.scripted import ScriptedJob
    from tests.stories.scenarios import Scenario

RANKS = (5001, 5002, 5003)
HEADER = "PID PPID PGID STAT NLWP CPUTIMES ETIMES RSS WCHAN COMMAND"
DENIED = "srun: error: Unable to create step for job: Access/permission denied"
FRAMES = {
    "forward": ["forward (torch/nn/modules/linear.py:134)", "training_step (trainer.py:3812)"],
    "collective": [
        "wait (torch/distributed/distributed_c10d.py:501)",
        "all_reduce (torch/distributed/distributed_c10d.py:2501)",
        "training_step (trainer.py:3830)",
    ],
    "lock": ["wait (threading.py:320)", "acquire (locks.py:14)", "training_step (trainer.py:3812)"],
    "saving": [
        "_save (torch/serialization.py:1006)",
        "save (torch/serialization.py:849)",
        "save_checkpoint (trainer.py:2901)",
    ],
    "compiling": [
        "compile_fx_inner (torch/_inductor/compile_fx.py:675)",
        "compile_fx (torch/_inductor/compile_fx.py:1500)",
    ],
    "network": [
        "read (ssl.py:1166)",
        "recv_into (ssl.py:1314)",
        "getresponse (http/client.py:1428)",
        "post (requests/api.py:115)",
    ],
}
GPU_HEADER = (
    "index, uuid, name, utilization.gpu [%], memory.used [MiB], memory.total [MiB], power.draw [W], power.limit [W]"
)


def evidence(it: Scenario, job: ScriptedJob, wanted: CaptureWanted, now: datetime) -> list[Captured]:
    pieces = {each.role: each for each in captures(job, wanted, now)}
    if job.state.live:
        _node(it, pieces, now)
    failing = it.circumstance.get("failing")
    if failing in ("log", "record", "devices"):
        role = Role(failing)
        pieces[role] = replace(
            pieces[role], data=None, failure="scontrol: error: Socket timed out on send/recv operation", exit_status=1
        )
    return list(pieces.values())


def _node(it: Scenario, pieces: dict[Role, Captured], now: datetime) -> None:
    processes, stack = it.truth["processes"], it.truth["stack"]
    table = None if processes == "denied" else _processes(processes, now)
    pieces[Role.PROCESSES] = _put(pieces[Role.PROCESSES], table)
    pieces[Role.STACK] = _put(pieces[Role.STACK], None if stack == "denied" else _stacks(stack, processes))
    gpu = it.circumstance.get("gpu")
    if gpu is None:
        return
    pieces[Role.DEVICES] = _put(
        pieces[Role.DEVICES], "/dev/nvidia0\n/dev/nvidia1\n/dev/nvidia2\n# 3 accelerator devices\n"
    )
    if gpu == "blind":
        lost = "Failed to initialize NVML: Driver/library version mismatch"
        pieces[Role.GPU] = replace(pieces[Role.GPU], data=None, failure=lost, exit_status=18)
        return
    pieces[Role.GPU] = _put(pieces[Role.GPU], _gpus(now))
    users = "".join(f"GPU-{number}, {pid}, {_command(pid)}, 40000 MiB\n" for number, pid in enumerate(RANKS))
    pieces[Role.GPU_PROCESSES] = _put(
        pieces[Role.GPU_PROCESSES], f"gpu_uuid, pid, process_name, used_gpu_memory [MiB]\n{users}"
    )


def _put(piece: Captured, text: str | None) -> Captured:
    if text is None:
        return replace(piece, data=None, failure=DENIED, exit_status=1)
    return replace(piece, data=text.encode(), failure=None, exit_status=0)


def _command(_pid: int) -> str:
    return "python train.py"


def _processes(kind: str, now: datetime) -> str:
    """Two samples, 4 s apart, of a launcher and its ranks."""
    lines = []
    for sample in (0, 1):
        lines += [f"# sample {sample + 1} at {int((now + timedelta(seconds=4 * sample)).timestamp())}", HEADER]
        lines.append(
            f"5000 1 5000 S 1 0.00 {9000 + 4 * sample} 1492 do_wait /bin/bash /var/spool/slurmd/job/slurm_script"
        )
        for number, pid in enumerate(RANKS):
            busy = kind == "busy" or (kind == "late" and number == 0)
            spent = 120 + (3.9 * sample if busy else 0.0)
            state, where = {
                "dead": ("Z", "-"),
                "disk": ("D", "cl_sync_io_wait"),
                "stopped": ("T", "do_signal_stop"),
            }.get(kind, ("R", "0") if busy else ("S", "futex_wait_queue"))
            command = "[python] <defunct>" if kind == "dead" else _command(pid)
            lines.append(f"{pid} 5000 5000 {state} 64 {spent:.2f} {9000 + 4 * sample} 9437184 {where} {command}")
    return "\n".join(lines) + "\n"


def _stacks(kind: str, processes: str) -> str:
    blocks = []
    for number, pid in enumerate(RANKS):
        mine = ("forward" if number == 0 else "collective") if kind == "late" else kind
        blocks.append(f"# process {pid} python")
        if mine.startswith("kernel"):
            state = {"dead": "Z", "disk": "D", "stopped": "T"}.get(processes, "R" if processes == "busy" else "S")
            where = "cl_sync_io_wait" if processes == "disk" else "futex_wait_queue" if state == "S" else "0"
            more = 390 if mine == "kernel-moving" else 0
            blocks += [
                "# by /proc", f"thread {pid} {state} {where} 12000 88 python",
                "# again after 4 s", f"thread {pid} {state} {where} {12000 + more} 88 python",
            ]  # fmt: skip
            continue
        how = "active" if processes == "busy" else "idle"
        blocks += ["# by py-spy dump", f'Thread {pid} ({how}): "MainThread"']
        blocks += [f"    {frame}" for frame in [*FRAMES[mine], "<module> (train.py:88)"]]
    return "\n".join(blocks) + "\n"


def _gpus(now: datetime) -> str:
    lines = []
    for sample in range(3):
        lines += [f"# sample {sample + 1} at {int(now.timestamp()) + sample}", GPU_HEADER]
        lines += [
            f"{number}, GPU-{number}, NVIDIA H100 80GB HBM3, 9{sample} %, 61000 MiB, 81559 MiB, 610.00 W, 700.00 W"
            for number in range(len(RANKS))
        ]
    return "\n".join(lines) + "\n"


def spoken_after(it: Scenario, now: datetime) -> bytes:
    """What goes on being printed after the newest progress, without being any."""
    kind = it.circumstance.get("log")
    if kind == "engine-after":
        return "".join(voices.engine(now.replace(tzinfo=None) - timedelta(seconds=10 * n)) for n in (3, 2, 1)).encode()
    if kind == "heartbeat-after":
        return (
            b"INFO 07-01 12:00:00 [shm_broadcast.py:501] No available shared memory broadcast block found in 60 seconds.\n"
            * 3
        )
    return b""


__all__: Sequence[str] = ("evidence", "spoken_after")
