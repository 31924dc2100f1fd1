from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import Gateway


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Gateway]:
    """The gateway with the demo agent and a fresh state directory."""
    with Gateway(tmp_path / "state") as running:
        yield running
