"""What is deployed: roles that only read, pods without privilege, images from pinned and hashed requirements."""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from supervisor.app.settings import parse
from supervisor.clusters.kubernetes_kinds import KINDS
from tests.kube_lab import start_kube_lab

ROOT = Path(__file__).resolve().parent.parent
MANIFEST = ROOT / "deploy" / "kubernetes" / "fleet-supervisor.yaml"

EXEC = MANIFEST.with_name("probe-exec.yaml")


@pytest.fixture(scope="module")
def objects() -> dict[str, Any]:
    return {each["kind"]: each for each in yaml.safe_load_all(MANIFEST.read_text(encoding="utf-8"))}


def test_the_role_can_only_read(objects):
    """KILL-1: nothing that runs under it can change or end a job."""
    assert {verb for rule in objects["ClusterRole"]["rules"] for verb in rule["verbs"]} == {"get", "list"}
    assert not any(
        "secrets" in rule["resources"] or "*" in rule["resources"] for rule in objects["ClusterRole"]["rules"]
    )


def test_the_right_to_exec_is_a_role_of_its_own_and_no_more():
    """PROBE-14: nobody has it who did not ask for it."""
    role, binding = yaml.safe_load_all(EXEC.read_text(encoding="utf-8"))

    assert role["rules"] == [{"apiGroups": [""], "resources": ["pods/exec"], "verbs": ["get", "create"]}]
    assert binding["roleRef"]["name"] == role["metadata"]["name"] == "fleet-supervisor-probe"


def test_the_role_covers_every_kind_that_is_asked_for(objects):
    allowed = {
        (group, resource)
        for rule in objects["ClusterRole"]["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    wanted = {(kind.group, kind.plural) for kind in KINDS} | {("kueue.x-k8s.io", "workloads")}
    wanted |= {("", resource) for resource in ("pods", "pods/log", "events", "namespaces")}

    assert wanted <= allowed


def test_the_config_of_the_manifest_is_one(objects):
    made = parse(tomllib.loads(objects["ConfigMap"]["data"]["config.toml"]), Path("/etc/fleet-supervisor/config.toml"))

    assert made.cluster[0].of_kind.in_cluster is True


def test_the_pod_has_no_privilege_and_writes_to_its_volume_alone(objects):
    pod = objects["StatefulSet"]["spec"]["template"]["spec"]
    container = pod["containers"][0]

    assert pod["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]},
    }  # fmt: skip
    writable = {each["name"] for each in container["volumeMounts"] if not each.get("readOnly")}
    assert writable == {"state", "tmp"}
    places = {each["name"]: each["value"] for each in container["env"]}
    assert all(place.startswith("/var/lib/fleet-supervisor/") for place in places.values())


def test_the_image_is_made_of_pinned_requirements_and_runs_as_nobody_special():
    lines = (ROOT / "deploy" / "Containerfile").read_text(encoding="utf-8")

    assert "--require-hashes" in lines
    assert re.search(r"^USER 10001:10001$", lines, re.MULTILINE)
    assert re.search(r"^VOLUME /var/lib/fleet-supervisor$", lines, re.MULTILINE)
    for source in re.findall(r"^COPY (?!--from)(.+) \S+$", lines, re.MULTILINE):
        for name in source.split():
            assert (ROOT / name).exists(), name


def test_requirements_are_pinned_hashed_and_name_no_index():
    for path in sorted((ROOT / "requirements").glob("*.txt")):
        text = path.read_text(encoding="utf-8")
        pins = re.findall(r"^[A-Za-z0-9][^ \n]*", text, re.MULTILINE)
        assert pins
        assert all("==" in pin for pin in pins), path.name
        assert text.count("--hash=sha256:") >= len(pins)
        assert "://" not in text
        assert "index-url" not in text


def run_packages(tmp_path: Path, *programs: str) -> subprocess.CompletedProcess[str]:
    """``deploy/lab/packages`` where these programs are all that can be found."""
    tools = tmp_path / "bin"
    tools.mkdir()
    for program in (*programs, "id", "mktemp", "rm", "cat", "tail"):
        (tools / program).write_text('#!/bin/sh\n[ "${0##*/}" = id ] && echo 1000\nexit 0\n')
        (tools / program).chmod(0o755)
    script = ROOT / "deploy" / "lab" / "packages"
    return subprocess.run(
        ["/bin/sh", str(script)], env={"PATH": str(tools)}, capture_output=True, text=True, check=False
    )


def test_packages_says_nothing_where_all_is_there(tmp_path):
    done = run_packages(tmp_path, "initdb", "sshd", "ssh", "ssh-keygen")

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_packages_says_what_is_missing_where_it_cannot_install_it(tmp_path):
    done = run_packages(tmp_path, "initdb", "sshd", "apt-get")

    assert done.returncode == 0
    assert done.stdout == ""
    assert done.stderr == (
        "packages: missing: openssh-client; only root may install them: sudo apt-get install openssh-client; "
        "tests that need them are skipped\n"
    )


def test_scripts_of_the_lab_can_be_run():
    for name in ("packages", "slurm-lab"):
        assert os.access(ROOT / "deploy" / "lab" / name, os.X_OK), name


PLACES = {
    "Namespace": "/api/v1/namespaces",
    "ServiceAccount": "/api/v1/namespaces/{namespace}/serviceaccounts",
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "ConfigMap": "/api/v1/namespaces/{namespace}/configmaps",
    "StatefulSet": "/apis/apps/v1/namespaces/{namespace}/statefulsets",
}


@pytest.mark.lab
def test_a_real_api_server_takes_the_manifest(objects):
    """Each object is checked whole by the server, strictly, and made nowhere (a dry run)."""
    lab = start_kube_lab()
    namespace = lab.namespace()
    try:
        for kind, thing in objects.items():
            whole = {**thing, "metadata": dict(thing["metadata"])}
            if "namespace" in whole["metadata"]:
                whole["metadata"]["namespace"] = namespace
            path = PLACES[kind].format(namespace=namespace) + "?dryRun=All&fieldValidation=Strict"
            made = lab.must("POST", path, whole)
            assert made["kind"] == kind
        for thing in yaml.safe_load_all(EXEC.read_text(encoding="utf-8")):
            lab.must("POST", PLACES[thing["kind"]] + "?dryRun=All&fieldValidation=Strict", thing)
    finally:
        lab.clear(namespace)
