"""Record what each test runs (``make planted-coverage``), and which planted defects tests find (``make planted``)."""

import argparse
import fcntl
import hashlib
import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

from scripts.planted.defects import Defect, load_defects, read_sources
from scripts.planted.planting import Checkout
from scripts.planted.process_recorder import FOLDER, ROOT
from scripts.planted.reach import Recording
from scripts.planted.recording import LINES, record
from scripts.planted.search import Ending, Finding, Search

_NOTES = Path(FOLDER) / "run"
_RESULTS = _NOTES / "results.jsonl"
_PLANTED = Path(ROOT) / "tests" / "planted"
# Who found what when it was last kept: `gate`, `campaign` or `nothing`.
_FOUND_BY = _PLANTED / "found.toml"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    recording = commands.add_parser("record", help="Run tests once and keep which lines each runs.")
    recording.add_argument("--workers", type=int, default=2)
    recording.add_argument("pytest", nargs=argparse.REMAINDER, help="arguments of pytest")
    run = commands.add_parser("run", help="Plant the defects, one at a time.")
    run.add_argument("--workers", type=int, default=2)
    run.add_argument("--seconds", type=int, default=240, help="for the tests of one defect")
    run.add_argument("--only", default="", help="the name of one defect")
    run.add_argument("--anew", action="store_true", help="forget the results of a run that was interrupted")
    run.add_argument("--keep", action="store_true", help="write who finds what to tests/planted/found.toml")
    run.add_argument("--defects", type=Path, default=_PLANTED / "defects.toml")
    options = parser.parse_args()
    _NOTES.mkdir(parents=True, exist_ok=True)
    with (_NOTES / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("Tests are recorded or defects planted in this checkout at the moment. Wait until that ends.")
            return 2
        if options.command == "record":
            return record([argument for argument in options.pytest if argument != "--"], workers=options.workers)
        return _run(options)


def _run(options: argparse.Namespace) -> int:
    checkout = Checkout(Path(ROOT), _NOTES)
    checkout.restore()
    if not checkout.is_clean():
        print("The checkout has changes. Commit them first: defects are planted in its files.")
        return 2
    if not LINES.exists():
        print("No test was recorded. Run: make planted-coverage")
        return 2
    defects = load_defects(options.defects)
    if options.only:
        defects = tuple(defect for defect in defects if defect.name == options.only)
        if not defects:
            print(f"No defect is named {options.only}.")
            return 2
    if options.anew:
        _RESULTS.unlink(missing_ok=True)
    kept = _kept()
    sources = read_sources(Path(ROOT))
    search = Search(Path(ROOT), Recording(LINES), checkout, _NOTES, workers=options.workers)
    done, findings, tree = _done(), [], _tree()
    for defect in defects:
        key = _key(defect, tree, options.seconds)
        finding = done.get(key)
        if finding is None:
            print(f"{defect.name}: …", flush=True)
            finding = search.find(defect, sources, seconds=options.seconds)
            # One that no longer applies is mended in a moment.
            if finding.ending is not Ending.NO_LONGER_APPLIES:
                with _RESULTS.open("a") as file:
                    file.write(json.dumps({"key": key, "finding": json.loads(finding.to_json())}) + "\n")
        findings.append(finding)
        print(_row(finding, kept), flush=True)
    return _report(findings, kept, keep=options.keep)


def _report(findings: Sequence[Finding], kept: dict[str, str], *, keep: bool) -> int:
    print(f"\n{'defect':36} {'result':18} {'before':9} {'ran':>5} {'of':>5} {'s':>4}  test or reason")
    for finding in findings:
        print(_row(finding, kept))
    count = sum(finding.ending is Ending.FOUND for finding in findings)
    print(f"{count} of {len(findings)} found")
    broken = [finding.name for finding in findings if finding.ending is Ending.NO_LONGER_APPLIES]
    lost = [
        finding.name
        for finding in findings
        if kept.get(finding.name) == "gate" and finding.ending is not Ending.FOUND and finding.name not in broken
    ]
    if broken:
        print(f"No longer apply; name their new place in tests/planted/defects.toml: {', '.join(broken)}")
    if lost:
        print(f"Found before and not now: {', '.join(lost)}")
    if keep and not lost:
        _keep(findings, kept)
    return 1 if broken or lost else 0


def _row(finding: Finding, kept: dict[str, str]) -> str:
    before = kept.get(finding.name, "–")
    return (
        f"{finding.name:36} {finding.ending:18} {before:9} {finding.ran:5} {finding.reaching:5} {finding.seconds:4}"
        f"  {finding.test}"
    )


def _kept() -> dict[str, str]:
    return {} if not _FOUND_BY.exists() else tomllib.loads(_FOUND_BY.read_text())


def _keep(findings: Sequence[Finding], kept: dict[str, str]) -> None:
    new = dict(kept)
    for finding in findings:
        if finding.ending is Ending.FOUND:
            new[finding.name] = "gate"
        elif finding.ending is not Ending.NO_LONGER_APPLIES:
            # Which campaign finds it is written by hand.
            new.setdefault(finding.name, "nothing")
    lines = [f"{json.dumps(name)} = {json.dumps(found_by)}" for name, found_by in sorted(new.items())]
    head = "# What finds each defect: gate, campaign (written by hand) or nothing. From `make planted FLAGS=--keep`."
    _FOUND_BY.write_text("\n".join([head, *lines]) + "\n")


def _done() -> dict[str, Finding]:
    if not _RESULTS.exists():
        return {}
    rows = [json.loads(line) for line in _RESULTS.read_text().splitlines()]
    return {row["key"]: Finding(**row["finding"] | {"ending": Ending(row["finding"]["ending"])}) for row in rows}


def _key(defect: Defect, tree: str, seconds: int) -> str:
    facts = f"{defect}{tree}{seconds}{os.stat(LINES).st_mtime_ns}"
    return hashlib.sha256(facts.encode()).hexdigest()


def _tree() -> str:
    """Return what is committed, without the defects: results of another tree are not taken up."""
    command = ["git", "-c", f"safe.directory={ROOT}", "ls-tree", "-r", "HEAD", "src", "tests", "web", "requirements"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return "\n".join(line for line in listed.splitlines() if "\ttests/planted/" not in line)


if __name__ == "__main__":
    sys.exit(main())
