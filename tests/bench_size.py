"""Prints size, start time and idle memory of the release binary. Figures, no judgement."""

from __future__ import annotations

import asyncio
import statistics
import tempfile
from pathlib import Path

from harness import TARGET, Gateway, opened
from measure import fill, resident_kib

BINARY = TARGET / "release" / "hermes-mobile"
FILL = TARGET / "release" / "fill-store"
STARTS = 5
MIB = 1024 * 1024


async def talk(gateway: Gateway) -> None:
    async with opened(gateway, "fill-1") as device:
        await device.ask("hi")


def start_times(state: Path) -> tuple[float, float]:
    """Milliseconds from the start of the process to `listening` (median of several), and MiB when idle after it."""
    times, memory = [], 0
    for _ in range(STARTS):
        with Gateway(state, binary=BINARY) as gateway:
            times.append(gateway.started_in * 1000)
            memory = resident_kib(gateway)
            asyncio.run(talk(gateway))
            gateway.terminate()
    return statistics.median(times), memory / 1024


def main() -> None:
    rows = [("stripped binary", f"{BINARY.stat().st_size / MIB:.1f} MiB", "< 25 MB")]
    with tempfile.TemporaryDirectory() as folder:
        for stored in (0, 1_000_000):
            state = Path(folder) / str(stored)
            if stored:
                fill(FILL, state, stored)
            time, memory = start_times(state)
            rows.append((f"start to ready, {stored:,} rows", f"{time:.0f} ms", "< 300 ms"))
            rows.append((f"idle memory, {stored:,} rows", f"{memory:.1f} MiB", "< 25 MB"))
    for name, value, aim in rows:
        print(f"{name:<32} {value:>10}   aim {aim}")


if __name__ == "__main__":
    main()
