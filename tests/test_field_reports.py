"""`field-reports.md` names the test of every rule from the field: the names exist, and none is missing there."""

from __future__ import annotations

import fnmatch
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "tests" / "field-reports.md"
ROW = re.compile(r"^\| (?!rule \||---)(?P<rule>[^|]+) \| (?P<tests>[^|]+) \|$", re.MULTILINE)
NAMED = re.compile(r"`([a-z0-9_*]+)` in `([^`]+)`")
# How a test of a name looks, by the kind of its file.
DEFINED = {
    ".rs": re.compile(r"^\s*(?:async )?fn ((?:field_)\w+)\(", re.MULTILINE),
    ".py": re.compile(r"^(?:async )?def (test_field_\w+)\(", re.MULTILINE),
    ".jsonl": re.compile(r'^\{"name":"(field_\w+)"', re.MULTILINE),
}
# In Rust a function is a test only with an attribute; further attributes and comments may stand between.
TEST = re.compile(r"#\[(?:tokio::)?test(?:\([^]]*\))?\]\n(?:\s*(?:#\[|//).*\n)*\s*(?:async )?fn (field_\w+)\(")


def defined(file: Path) -> set[str]:
    return set(DEFINED[file.suffix].findall(file.read_text()))


def rows() -> list[tuple[str, list[tuple[str, str]]]]:
    return [(row["rule"], NAMED.findall(row["tests"])) for row in ROW.finditer(PAGE.read_text())]


def everywhere() -> set[tuple[str, str]]:
    files = [*ROOT.glob("crates/**/*.rs"), *ROOT.glob("tests/*.py"), *ROOT.glob("spec/vectors/*.jsonl")]
    return {
        (name, file.relative_to(ROOT).as_posix())
        for file in files
        if "target" not in file.relative_to(ROOT).parts
        for name in defined(file)
    }


def test_the_page_is_read() -> None:
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    heads = [line for line in lines if line.startswith("| rule ")]
    assert len(rows()) == len(lines) - len(heads) >= 60


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[0])
def test_every_named_test_exists(row: tuple[str, list[tuple[str, str]]]) -> None:
    rule, named = row
    assert named, f"no test for: {rule}"
    for name, path in named:
        assert (ROOT / path).is_file(), f"{path} does not exist"
        there = fnmatch.filter(defined(ROOT / path), name)
        assert there, f"{path} has no test {name}"
        if path.endswith(".rs"):
            assert name in TEST.findall((ROOT / path).read_text()), f"{name} in {path} is not run as a test"


def test_every_field_test_is_named() -> None:
    named = [test for _, tests in rows() for test in tests]
    missing = {
        f"{name} in {path}"
        for name, path in everywhere()
        if not any(path == of and fnmatch.fnmatch(name, pattern) for pattern, of in named)
    }
    assert not missing, "add these to a row of tests/field-reports.md: " + ", ".join(sorted(missing))
