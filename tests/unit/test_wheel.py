"""The wheel is complete: it has every file of the package, and works without the checkout."""

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

from tests.wait_until import PATIENCE
from toolcrib import __version__
from toolcrib.core.errors import Misconfigured
from toolcrib.runtime import process_setup
from toolcrib.storage.migrate import fingerprint

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "toolcrib"

pytestmark = pytest.mark.xdist_group("wheel")


def built(what: str, folder: Path, *, at: Path = ROOT) -> Path:
    build = [sys.executable, "-m", "hatchling", "build", "-t", what, "-d", str(folder)]
    subprocess.run(build, cwd=at, check=True, capture_output=True, timeout=PATIENCE)
    (made,) = folder.iterdir()
    return made


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built("wheel", tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source distribution, unpacked as someone who builds from it does."""
    folder = tmp_path_factory.mktemp("source")
    sdist = built("sdist", tmp_path_factory.mktemp("sdist"))
    shutil.unpack_archive(sdist, folder)
    return folder / f"toolcrib-{__version__}"


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new virtual environment with the wheel. Its dependencies come from ours, so it needs no network."""
    folder = tmp_path_factory.mktemp("venv")
    venv.create(folder, with_pip=False)
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(folder)}))
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(packages)
    # Later on the path than the wheel's own packages, and without the entries that lead to the checkout.
    (packages / "lent.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder


def test_every_file_of_the_package_is_in_the_wheel(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if name.startswith("toolcrib/")}

    present = {
        f"toolcrib/{path.relative_to(PACKAGE)}"
        for path in PACKAGE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert packed == present
    assert "toolcrib/py.typed" in packed
    assert any(name.endswith(".sql") for name in packed)


def test_a_wheel_built_from_the_source_distribution_is_the_same(wheel: Path, unpacked: Path, tmp_path: Path) -> None:
    """Without Node: the source distribution has the web UI as it was built."""
    again = built("wheel", tmp_path, at=unpacked)

    with zipfile.ZipFile(wheel) as first, zipfile.ZipFile(again) as second:
        assert sorted(second.namelist()) == sorted(first.namelist())
        assert "toolcrib/api/web/index.html" in second.namelist()
        assert all(second.read(name) == first.read(name) for name in first.namelist())


def test_without_the_web_ui_nothing_is_built(unpacked: Path, tmp_path: Path) -> None:
    source = tmp_path / "source"
    shutil.copytree(unpacked, source)
    shutil.rmtree(source / "src" / "toolcrib" / "api" / "web")

    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path / "dist")]
    ended = subprocess.run(build, cwd=source, capture_output=True, text=True, timeout=PATIENCE, check=False)

    assert ended.returncode != 0
    assert "Run `make web`" in ended.stdout + ended.stderr


def test_it_is_platform_independent_and_has_complete_metadata(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        facts = {Path(name).name: archive.read(name).decode() for name in archive.namelist() if "dist-info" in name}

    about = Parser().parsestr(facts["METADATA"])
    assert wheel.name == f"toolcrib-{__version__}-py3-none-any.whl"
    assert "Root-Is-Purelib: true" in facts["WHEEL"]
    assert "toolcrib = toolcrib.cli.main:main" in facts["entry_points.txt"]
    assert (about["Name"], about["Version"], about["License-Expression"]) == ("toolcrib", __version__, "Apache-2.0")
    assert "Operating System :: POSIX :: Linux" in about.get_all("Classifier", [])
    assert {"Homepage", "Changelog", "Security"} <= {url.split(",")[0] for url in about.get_all("Project-URL", [])}


def test_it_works_without_the_checkout(installed: Path) -> None:
    program = (
        "import sys, toolcrib; from toolcrib.cli.main import main; from toolcrib.storage.migrate import fingerprint; "
        "print(toolcrib.__file__); print(fingerprint()); sys.argv = ['toolcrib', '--version']; main()"
    )
    ran = subprocess.run(
        [installed / "bin" / "python", "-P", "-c", program],
        cwd=installed,
        env={"PATH": os.defpath},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )

    assert ran.returncode == 0, ran.stderr
    where, database, version = ran.stdout.splitlines()
    assert where.startswith(str(installed))
    assert database == fingerprint()
    assert version == f"toolcrib {__version__}"


def test_other_systems_are_rejected_with_an_alternative(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")

    with pytest.raises(Misconfigured, match=r"Linux only, and this is darwin.*--server"):
        process_setup.require_linux()
