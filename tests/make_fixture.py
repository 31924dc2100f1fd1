"""Makes `tests/fixtures/state-v1`: a state directory of this version, which every later binary must open.

Run it only when there is a new format: `.venv/bin/python tests/make_fixture.py`.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from pathlib import Path

from harness import Device, Gateway, final_message, is_a

FIXTURE = Path(__file__).resolve().parent / "fixtures" / "state-v1"


async def fill(gateway: Gateway) -> None:
    phone = Device(gateway, "phone")
    await phone.open()
    await phone.text("kept", id="f-1")
    await phone.until(final_message("You said: kept"))
    await phone.text("/approve 86400 ls", id="f-2")
    await phone.until(is_a("prompt"))
    await phone.settled()
    # The answers to these two are ready when nobody is there.
    await phone.text("/slow 1", id="f-3")
    await phone.text("/image", id="f-4")
    await phone.close()
    # Another device is told of it when the agent has done both.
    other = Device(gateway, "other")
    await other.open()
    await other.ask("/slow 2", "done after 2 s")
    await other.close()


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        state = Path(folder) / "state"
        with Gateway(state) as gateway:
            asyncio.run(fill(gateway))
            gateway.terminate()
        shutil.rmtree(FIXTURE, ignore_errors=True)
        FIXTURE.mkdir(parents=True)
        shutil.copy(state / "store.db", FIXTURE)
        shutil.copytree(state / "media", FIXTURE / "media")


if __name__ == "__main__":
    main()
