"""The files in deploy/ fit the program: settings that exist, one version, and the privileges that commands need."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from tests.wait_until import PATIENCE
from toolcrib import __version__
from toolcrib.settings import Settings

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
# Of compose itself, not settings of the server.
OF_COMPOSE = {"TOOLCRIB_IMAGE", "TOOLCRIB_APP_PASSWORD", "TOOLCRIB_BACKUPS", "TOOLCRIB_PUBLISH"}
OF_CADDY = {"TOOLCRIB_DOMAIN", "TOOLCRIB_TLS", "TOOLCRIB_UPSTREAM"}
NAMESPACES = {"clone", "unshare", "mount", "umount2", "pivot_root", "sethostname"}
DANGEROUS = {"bpf", "init_module", "kexec_load", "keyctl", "open_by_handle_at", "perf_event_open", "userfaultfd"}


def yaml_of(path: str) -> Any:
    return YAML(typ="safe").load(DEPLOY / path)


def test_every_setting_that_they_name_exists() -> None:
    known = {f"TOOLCRIB_{name.upper()}" for name in Settings.model_fields} | {"TOOLCRIB_ENV_FILE"}
    files = [path for path in DEPLOY.rglob("*") if path.is_file()]

    unknown = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in files
        for name in re.findall(r"\bTOOLCRIB_[A-Z_]+\b", path.read_text())
        if name not in known | OF_COMPOSE | OF_CADDY
    }
    assert files
    assert unknown == set()


def test_kubernetes_migrates_before_it_replaces_one_node_after_another() -> None:
    templates = DEPLOY / "helm/toolcrib/templates"

    assert "helm.sh/hook: pre-install,pre-upgrade\n" in (templates / "migration.yaml").read_text()
    # Its own default is to replace them so.
    assert "updateStrategy" not in (templates / "statefulset.yaml").read_text()


def test_the_chart_has_the_version_of_the_package() -> None:
    chart = yaml_of("helm/toolcrib/Chart.yaml")

    assert (chart["version"], chart["appVersion"]) == (__version__, __version__)


def test_compose_gives_the_server_what_commands_need_and_nothing_else() -> None:
    services = yaml_of("compose.yaml")["services"]
    server = services["toolcrib"]

    assert server["read_only"] is True
    assert server["cap_drop"] == ["ALL"]
    assert "privileged" not in server
    assert {"no-new-privileges:true", "seccomp:./seccomp.json", "systempaths=unconfined"} <= set(server["security_opt"])
    assert server["depends_on"]["migrate"] == {"condition": "service_completed_successfully"}
    # Only the migration has the password of the database's owner, and only the server is published.
    assert [name for name, one in services.items() if "TOOLCRIB_OWNER_DATABASE_URL" in one.get("environment", {})] == [
        "migrate"
    ]
    assert [name for name, one in services.items() if "ports" in one] == ["toolcrib"]


def test_compose_has_no_secret_of_its_own() -> None:
    text = (DEPLOY / "compose.yaml").read_text()

    secrets = re.findall(r"\$\{((?:TOOLCRIB|POSTGRES)_\w*(?:PASSWORD|SECRET|KEY))([^}]*)\}", text)
    assert len(secrets) >= 5
    # An empty setting is none: without a password, there is no account from the environment.
    assert all(rest.startswith(":?") or not rest for _, rest in secrets), "Everyone would know a default."


def test_the_seccomp_profile_allows_namespaces_and_nothing_dangerous() -> None:
    profile = json.loads((DEPLOY / "seccomp.json").read_text())
    plain = [rule for rule in profile["syscalls"] if rule["action"] == "SCMP_ACT_ALLOW" and "args" not in rule]
    allowed = {name for rule in plain for name in rule["names"]}

    assert profile["defaultAction"] == "SCMP_ACT_ERRNO"
    assert allowed >= NAMESPACES
    assert not allowed & DANGEROUS
    # Only what the OCI specification has: containerd reads no other fields.
    fields = {field for rule in profile["syscalls"] for field in rule}
    assert fields <= {"names", "action", "errnoRet", "args"}
    assert set(profile) == {"defaultAction", "defaultErrnoRet", "architectures", "syscalls"}


def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    unit = tmp_path / "toolcrib.service"
    text = (DEPLOY / "systemd" / "toolcrib.service").read_text()
    unit.write_text(text.replace("/opt/toolcrib/bin/toolcrib", str(Path(sys.executable).with_name("toolcrib"))))

    ended = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", unit],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )

    # Older versions do not know this key, and say so.
    said = [line for line in ended.stderr.splitlines() if unit.name in line and "DelegateSubgroup" not in line]
    assert (ended.returncode, said) == (0, [])


def test_the_unit_keeps_what_commands_need() -> None:
    """Each of these would keep bubblewrap from making namespaces or a new /proc."""
    text = (DEPLOY / "systemd" / "toolcrib.service").read_text()
    set_ = {line.partition("=")[0] for line in text.splitlines() if not line.startswith("#")}

    assert set_ >= {"User", "NoNewPrivileges", "Delegate"}
    assert not set_ & {
        "PrivateUsers",
        "ProcSubset",
        "ProtectKernelLogs",
        "ProtectKernelTunables",
        "ProtectProc",
        "RestrictNamespaces",
        "SystemCallFilter",
    }


def test_setup_installs_what_these_tests_use() -> None:
    assert shutil.which("systemd-analyze")
    assert "systemd-analyze:systemd" in (ROOT / "scripts" / "setup").read_text()


def test_setup_names_every_program_that_a_release_check_requires() -> None:
    setup = (ROOT / "scripts" / "setup").read_text()
    installed = set(re.findall(r"([\w-]+):[\w-]+", setup.partition("missing_for_release() {")[2].partition("\n}")[0]))
    checks = "".join(path.read_text() for path in sorted((ROOT / "tests" / "deploy").glob("*.py")))
    required = {
        name for call in re.findall(r"\brequire\(([^)]*)\)", checks) for name in re.findall(r'"([\w-]+)"', call)
    }

    assert {"podman", "caddy", "nginx"} <= required
    assert required <= installed
