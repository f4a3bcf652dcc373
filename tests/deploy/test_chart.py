"""The Helm chart renders to objects that Kubernetes accepts. Needs the tools of a release."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from tests.wait_until import PATIENCE

ROOT = Path(__file__).parents[2]
TOOLS = ROOT / ".local" / "release" / "bin"
CHART = ROOT / "deploy" / "helm" / "toolcrib"
KUBERNETES = "1.33.0"
ALL_VALUES = (
    "--set=secret=toolcrib,replicas=3,ingress.enabled=true,ingress.className=nginx,ingress.tlsSecret=tls,"
    "storage.className=fast,trustedProxies=10.0.0.0/8,settings.TOOLCRIB_POOL_SIZE=32"
)

pytestmark = pytest.mark.deploy


def helm(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([TOOLS / "helm", *arguments], capture_output=True, text=True, timeout=PATIENCE, check=False)


def rendered(*values: str) -> list[Any]:
    ended = helm("template", "crib", str(CHART), "--namespace", "tools", "--kube-version", KUBERNETES, *values)
    assert ended.returncode == 0, ended.stderr
    return [one for one in YAML(typ="safe").load_all(ended.stdout) if one]


@pytest.mark.parametrize("values", ["--set=secret=toolcrib", ALL_VALUES])
def test_the_chart_renders_to_valid_objects(values: str, tmp_path: Path) -> None:
    lint = helm("lint", "--strict", str(CHART), "--kube-version", KUBERNETES, values)
    assert lint.returncode == 0, lint.stdout + lint.stderr
    kinds = set()
    for number, one in enumerate(rendered(values)):
        kinds.add(one["kind"])
        # JSON is YAML whose strings every version reads alike; "off" is not.
        file = tmp_path / f"{number}.yaml"
        file.write_text(json.dumps(one))
        checked = subprocess.run(
            [TOOLS / "kubernetes-validate", "--strict", "-k", KUBERNETES.rpartition(".")[0], file],
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert checked.returncode == 0, checked.stdout + checked.stderr
    assert {"StatefulSet", "Service", "Job"} <= kinds
    assert ("Ingress" in kinds) == (values == ALL_VALUES)


def test_without_a_secret_the_chart_says_which_keys_it_needs() -> None:
    ended = helm("template", "crib", str(CHART), "--kube-version", KUBERNETES)

    assert ended.returncode != 0
    assert "Set `secret` to the name of a Secret" in ended.stderr


def test_pods_have_what_commands_need_and_no_more() -> None:
    [servers] = [one for one in rendered("--set=secret=toolcrib") if one["kind"] == "StatefulSet"]
    pod = servers["spec"]["template"]["spec"]
    [container] = pod["containers"]
    rights = container["securityContext"]

    assert pod["hostUsers"] is False
    assert rights["procMount"] == "Unmasked"
    assert rights["seccompProfile"] == {"type": "Localhost", "localhostProfile": "toolcrib/seccomp.json"}
    assert rights["capabilities"] == {"drop": ["ALL"]}
    assert (rights["readOnlyRootFilesystem"], rights["allowPrivilegeEscalation"]) == (True, False)
    assert pod["securityContext"]["runAsNonRoot"] is True
    # Otherwise a release with the name toolcrib sets TOOLCRIB_PORT.
    assert pod["enableServiceLinks"] is False
    settings = {one["name"]: one.get("value") for one in container["env"]}
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        [host] = [one["value"] for one in container[probe]["httpGet"]["httpHeaders"] if one["name"] == "Host"]
        assert host in settings["TOOLCRIB_ALLOWED_HOSTS"].split(",")
    [owner] = [one for one in container["env"] if one["name"] == "TOOLCRIB_OWNER_DATABASE_URL"]
    assert owner["value"] == "", "The server must not have the password of the database's owner."
