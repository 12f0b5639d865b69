"""Devices, their users and the job's memory, as nvidia-smi of several drivers and control groups of both generations tell them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.gates import devices
from tests.gates.cases import some_case

HEAD = "index, uuid, name, utilization.gpu [%], memory.used [MiB], memory.total [MiB], power.draw [W], power.limit [W]"


def gpu(*samples: str, head: str = HEAD) -> str:
    """``samples``: the rows of each."""
    return "".join(f"# sample {n} at {1790000000 + n}\n{head}\n{rows}\n" for n, rows in enumerate(samples, 1))


def row(
    index: int, use: str, memory: str = "71234 MiB", watts: str = "612.35 W", name: str = "NVIDIA H100 80GB HBM3"
) -> str:
    return f"{index}, GPU-{index:08d}-1a2b, {name}, {use}, {memory}, 81559 MiB, {watts}, 700.00 W"


def view(text: str) -> devices.GpuView:
    (found,) = devices.gpus(some_case({"gpu-n1.csv": text}))
    return found


def test_each_device_has_its_use_in_each_sample():
    text = gpu(*(row(0, f"{use} %") + "\n" + row(1, "0 %", watts="118.02 W") for use in (91, 99, 0)))

    busy, idle = view(text).devices

    assert busy.uses == (91.0, 99.0, 0.0)
    assert (busy.busy(30), busy.idle(5), busy.peak) == (True, False, 99.0)
    assert (idle.busy(30), idle.idle(5)) == (False, True)
    assert (busy.node, busy.index, busy.name) == ("n1", "0", "NVIDIA H100 80GB HBM3")
    assert busy.memory_share == pytest.approx(71234 / 81559)
    assert idle.watts_share == pytest.approx(118.02 / 700)
    assert idle.quote.line == 12


def test_one_sample_proves_no_rest():
    """Between two kernels every device rests."""
    assert view(gpu(row(0, "0 %"))).devices[0].idle(5) is None


@pytest.mark.parametrize(
    "word", ["[N/A]", "[Not Supported]", "N/A", "[Unknown Error]", "[Insufficient Permissions]", "[GPU requires reset]"]
)
def test_what_a_driver_does_not_tell_is_unknown_and_never_zero(word: str):
    """A sliced device (MIG) has no use of its own; older drivers write it in other words."""
    (device,) = view(gpu(*(row(0, word, memory=word, watts=word) for _ in range(3)))).devices

    assert (device.uses, device.peak, device.busy(30), device.idle(5)) == ((None, None, None), None, None, None)
    assert (device.memory_share, device.watts_share) == (None, None)


def test_a_sample_that_is_missing_for_one_device_proves_no_rest_of_it():
    (device,) = view(gpu(row(0, "0 %"), row(0, "[N/A]"), row(0, "0 %"))).devices

    assert device.idle(5) is None


def test_tables_without_units_and_with_other_columns_in_another_order_read_the_same():
    text = gpu(
        "98, GPU-a, 0, Tesla V100-SXM2-32GB",
        "97, GPU-a, 0, Tesla V100-SXM2-32GB",
        head="utilization.gpu [%], uuid, index, name",
    )

    (device,) = view(text).devices

    assert (device.uses, device.uuid, device.index, device.memory_total_mib) == ((98.0, 97.0), "GPU-a", "0", None)


def test_no_devices_is_a_statement_of_its_own():
    found = view("# sample 1 at 1790000001\nNo devices were found\n")

    assert found.none_found is not None
    assert (found.none_found.line, found.devices, found.complaint) == (2, (), None)


@pytest.mark.parametrize(
    "line",
    [
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest NVIDIA driver is installed and running.",
        "Failed to initialize NVML: Driver/library version mismatch",
        "Failed to initialize NVML: Unknown Error",
        "Unable to determine the device handle for GPU0000:5D:00.0: GPU is lost.  Reboot the system to recover this GPU",
    ],
)
def test_what_the_tool_complains_of_is_kept(line: str):
    found = view(f"# sample 1 at 1790000001\n{line}\n")

    assert found.complaint is not None
    assert found.complaint.text == line
    assert found.devices == ()


def test_a_lost_device_beside_good_ones_is_told_beside_them():
    lost = (
        "Unable to determine the device handle for GPU0000:5D:00.0: GPU is lost.  Reboot the system to recover this GPU"
    )
    found = view(gpu(row(0, "98 %"), row(0, "97 %")) + lost + "\n")

    assert len(found.devices) == 1
    assert found.complaint is not None


USERS = """\
gpu_uuid, pid, process_name, used_gpu_memory [MiB]
GPU-00000000-1a2b, 4711, ray::FSDPPolicyWorkerBase.ppo_train, 70000 MiB
GPU-00000001-1a2b, 4712, /usr/bin/python3, [N/A]
GPU-00000001-1a2b, [Not Found], [Insufficient Permissions], 10 MiB
"""


def test_who_uses_which_device():
    first, second = devices.users(some_case({"gpu-processes-n1.csv": USERS}))

    assert (first.pid, first.uuid, first.name, first.memory_mib) == (
        4711,
        "GPU-00000000-1a2b",
        "ray::FSDPPolicyWorkerBase.ppo_train",
        70000.0,
    )
    assert (second.pid, second.memory_mib, second.node) == (4712, None, "n1")


def test_no_process_on_any_device_is_a_table_without_rows():
    assert devices.users(some_case({"gpu-processes-n1.csv": USERS.splitlines()[0] + "\n"})) == ()


def test_zero_devices_is_a_positive_statement_and_a_list_that_broke_off_is_none():
    none = devices.files(some_case({"devices-n1.txt": "# 0 accelerator devices\n"}))
    some = devices.files(some_case({"devices-n1.txt": "/dev/nvidia0\n/dev/nvidia1\n# 2 accelerator devices\n"}))
    broken = devices.files(some_case({"devices-n1.txt": "/dev/nvidia0\n"}))

    assert [(each.count, each.quote.text) for each in none] == [(0, "# 0 accelerator devices")]
    assert [(each.count, each.paths) for each in some] == [(2, ("/dev/nvidia0", "/dev/nvidia1"))]
    assert broken == ()


SECOND = """\
# path /sys/fs/cgroup/system.slice/slurmstepd.scope/job_4711/memory.events
low 0
high 0
max 812
oom 2
oom_kill 2
oom_group_kill 0
# path /sys/fs/cgroup/system.slice/slurmstepd.scope/job_4711/memory.max
536870912000
# path /sys/fs/cgroup/system.slice/slurmstepd.scope/job_4711/memory.current
536870900000
# path /sys/fs/cgroup/system.slice/slurmstepd.scope/job_4711/memory.pressure
some avg10=0.00 avg60=0.00 avg300=0.00 total=0
"""
FIRST = """\
# path /sys/fs/cgroup/memory/slurm/uid_1000/job_4711/memory.oom_control
oom_kill_disable 0
under_oom 0
oom_kill 0
# path /sys/fs/cgroup/memory/slurm/uid_1000/job_4711/memory.limit_in_bytes
9223372036854771712
# path /sys/fs/cgroup/memory/slurm/uid_1000/job_4711/memory.usage_in_bytes
113229824
# path /sys/fs/cgroup/memory/slurm/uid_1000/job_4711/memory.failcnt
0
"""


def test_memory_groups_of_both_generations_tell_kills_limits_and_use():
    (new,) = devices.memory(some_case({"memory-n1.txt": SECOND}))
    (old,) = devices.memory(some_case({"memory-n1.txt": FIRST}))

    assert (new.oom_kills, new.limit_hits, new.limit_bytes, new.used_bytes) == (2, 812, 536870912000, 536870900000)
    assert new.kills_quote is not None
    assert (new.kills_quote.line, new.kills_quote.text) == (6, "oom_kill 2")
    assert (old.oom_kills, old.limit_hits, old.limit_bytes, old.used_bytes) == (0, 0, None, 113229824)


PIECES = [
    *gpu(row(0, "1 %"), row(1, "[N/A]")).splitlines(),
    *USERS.splitlines(),
    *SECOND.splitlines(),
    *FIRST.splitlines(),
    '"a, b',
    "index, uuid",
]


@given(st.lists(st.one_of(st.text(max_size=60), st.sampled_from(PIECES)), max_size=40))
def test_no_text_is_too_strange_to_be_read(lines):
    for device in devices.read_gpu(lines, "g").devices:
        assert device.quote.text in lines[(device.quote.line or 0) - 1]
        assert len(device.uses) == len(device.lines)
    devices.read_users(lines, "u")
    devices.read_files(lines, "d")
    found = devices.read_memory(lines, "m")
    assert (found.oom_kills is None) == (found.kills_quote is None)
