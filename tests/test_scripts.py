"""The scripts that run and count the tests: a failure must never be counted away."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from harness import ROOT


def load(name: str) -> ModuleType:
    loader = importlib.machinery.SourceFileLoader(name, str(ROOT / "scripts" / name))
    spec = importlib.util.spec_from_loader(name, loader)
    assert spec
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


run_part = load("run_part")


@pytest.mark.parametrize(
    ("line", "counts"),
    [
        ("     Summary [   0.012s] 34 tests run: 34 passed, 2 skipped", (34, 0, 0)),
        ("     Summary [   9.012s] 10/34 tests run: 7 passed (1 slow), 2 failed, 1 timed out, 5 skipped", (7, 3, 0)),
        ("     Summary [   0.000s] 0 tests run: 0 passed, 3 skipped", (0, 0, 0)),
        ("test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s", (3, 0, 1)),
        ("test result: FAILED. 3 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out", (3, 2, 0)),
        ("\x1b[32m\x1b[1m5 passed\x1b[0m\x1b[32m in 0.12s\x1b[0m", (5, 0, 0)),
        ("=== 1 failed, 5 passed, 2 skipped, 1 error in 61.20s (0:01:01) ===", (5, 2, 2)),
        ("1 passed, 3 deselected in 0.01s", (1, 0, 0)),
        ("247 passed, 0 failed", (247, 0, 0)),
        ("kosoku: 246 passed, 1 failed, 3 skipped", (246, 1, 3)),
        ("we passed 3 of 4", None),
        ("running 3 tests", None),
        ("error: 3 passed; 1 failed", None),
    ],
)
def test_closing_lines_of_runners(line: str, counts: tuple[int, int, int] | None) -> None:
    assert run_part.numbers(line) == counts


class Tree:
    """A copy of the scripts in a folder of its own, so that the report of the real run is left alone."""

    def __init__(self, root: Path) -> None:
        self.root = root
        shutil.copytree(ROOT / "scripts", root / "scripts")

    def part(self, *words: str) -> int:
        command = [str(self.root / "scripts" / "run_part"), *words]
        return subprocess.run(command, check=False, capture_output=True).returncode

    def report(self, *parts: str) -> tuple[int, str]:
        command = [str(self.root / "scripts" / "report"), *parts]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        return done.returncode, done.stdout.splitlines()[-1]


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def test_parts_are_summed(tree: Tree) -> None:
    assert tree.part("--step", "build", "1", "--", "true") == 0
    assert tree.part("lint.one", "1", "--", "true") == 0
    assert tree.part("--tests", "unit.a", "1", "--", *python("print('3 passed, 0 failed')")) == 0
    assert tree.part("--tests", "unit.b", "1", "--", *python("print('4 passed, 0 failed, 1 skipped')")) == 0
    assert tree.report("build", "lint", "unit") == (0, "8 passed, 0 failed")


@pytest.mark.parametrize(
    ("words", "failed"),
    [
        (["unit", "1", "--", "false"], 1),
        (["unit", "1", "--", "no-such-command"], 1),
        # A runner that fails and says nothing of it, one that says so and exits 0, one that ran nothing.
        (["unit", "1", "--", *python("print('3 passed, 0 failed'); raise SystemExit(1)")], 1),
        (["unit", "1", "--", *python("print('3 passed, 2 failed')")], 2),
        (["--tests", "unit", "1", "--", *python("print('0 passed, 0 failed')")], 1),
        (["--tests", "unit", "1", "--", "true"], 1),
        (["--step", "unit", "1", "--", "false"], 1),
    ],
)
def test_a_failure_is_counted_and_told(tree: Tree, words: list[str], failed: int) -> None:
    assert tree.part(*words) != 0
    code, closing = tree.report("unit")
    assert code == 1
    assert closing.endswith(f" {failed} failed")


def test_a_part_that_did_not_run_is_a_failure(tree: Tree) -> None:
    assert tree.part("--tests", "unit", "1", "--", *python("print('3 passed, 0 failed')")) == 0
    assert tree.report("unit", "wire") == (1, "3 passed, 1 failed")


def test_the_record_tells_time_and_budget(tree: Tree) -> None:
    tree.part("lint.one", "2.5", "--", "true")
    record = json.loads((tree.root / "target" / "report" / "lint.one.json").read_text())
    assert record["budget_minutes"] == 2.5
    assert record["seconds"] >= 0
    assert record["name"] == "lint.one"


def test_setup_lists_what_is_missing_and_installs_nothing_for_an_ordinary_user(tree: Tree) -> None:
    """Somebody who is not root, outside CI, with no tools: one command line to copy, exit code 2, no sudo."""
    (tree.root / "tests" / "node").mkdir(parents=True)
    for name in ("requirements.txt", "node/package.json", "node/package-lock.json"):
        shutil.copy(ROOT / "tests" / name, tree.root / "tests" / name)
    code = "\n".join(
        [
            "import os, sys, runpy",
            f"sys.argv = [{str(tree.root / 'scripts' / 'setup')!r}]",
            # Who we are is all that is pretended: the folders of the real user may be closed to others.
            "os.geteuid = lambda: 1000",
            "runpy.run_path(sys.argv[0], run_name='__main__')",
        ]
    )
    env = {key: value for key, value in os.environ.items() if key != "CI"}
    before = sorted(tree.root.rglob("*"))
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True, env=env)
    assert done.returncode == 2, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert [line for line in lines if line.startswith("setup: to install it: ")] == [lines[-1]]
    assert lines[-1].endswith("scripts/setup --install")
    assert any(".venv" in line for line in lines)
    assert sorted(tree.root.rglob("*")) == before


def test_a_frame_over_its_budget_is_named(tree: Tree) -> None:
    codec = tree.root / "codec"
    # Two frames, the second of which does a hundred times as much.
    codec.write_text(
        "#!/bin/sh\n[ $# = 0 ] && { echo small; echo large; exit; }\n"
        "i=0; n=$2; [ $1 = large ] && n=$((n * 100))\nwhile [ $i -lt $n ]; do i=$((i + 1)); done\n"
    )
    codec.chmod(0o755)
    (tree.root / "bench").mkdir()
    budget = tree.root / "bench" / "codec.budget"

    def check(*words: str) -> tuple[int, str]:
        command = [str(tree.root / "scripts" / "codec_budget"), str(codec), *words]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        return done.returncode, done.stdout

    assert check("--write")[0] == 0
    code, shown = check()
    assert (code, shown.splitlines()[-1]) == (0, "2 passed, 0 failed")
    most = dict(line.split() for line in budget.read_text().splitlines()[1:])
    assert int(most["large"]) > 50 * int(most["small"])
    budget.write_text(f"large {int(most['large']) // 2}\nsmall {most['small']}\n")
    code, shown = check()
    assert (code, shown.splitlines()[-1]) == (1, "1 passed, 1 failed")
    assert [line.split()[0] for line in shown.splitlines() if "over its budget" in line] == ["large"]
    budget.write_text(f"small {most['small']}\n")
    assert check()[0] == 1, "a frame without a budget"
