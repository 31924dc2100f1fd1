"""What the tests from outside share: the real binary as a child process, and devices that are real foreign clients."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import fcntl
import hashlib
import itertools
import json
import os
import pty
import queue
import re
import signal
import struct
import subprocess
import termios
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import websockets
from websockets.asyncio.client import ClientConnection, connect
from websockets.frames import Frame as WebSocketFrame
from websockets.frames import Opcode

Frame = dict[str, Any]
Wanted = Callable[[Frame], bool]

ROOT = Path(__file__).resolve().parent.parent
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
BINARY = Path(os.environ.get("HERMES_MOBILE_BIN", TARGET / "debug" / "hermes-mobile"))
PROMTOOL = ROOT / "target" / "tools" / "bin" / "promtool"
WSCAT = ROOT / "target" / "tools" / "node" / "node_modules" / ".bin" / "wscat"

TOKEN = "test-token-0123456789abcdef"
# How long something may take that is expected. Only a failing test waits so long.
PATIENCE = 20.0

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


def encode(data: bytes) -> str:
    return base64.b64encode(data).decode()


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def is_a(t: str, **fields: Any) -> Wanted:
    """Matches frames of type `t` whose fields have these values."""
    return lambda frame: frame.get("t") == t and all(frame.get(key) == value for key, value in fields.items())


def final_message(part: str = "") -> Wanted:
    """Matches the last frame of a message; `part` must be in that frame's text."""
    return lambda frame: frame.get("t") == "message" and frame["final"] and part in frame["text"]


class Gateway:
    """`hermes-mobile serve` on a free port. A context manager; `kill` and `start` may be called in between."""

    def __init__(self, state: Path, agent: str = "demo", binary: Path = BINARY, **settings: str) -> None:
        self.state, self.agent, self.binary = state, agent, binary
        # Nothing of the caller's own settings leaks in.
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("MOBILE_")}
        # A short pause before idle, so that a test does not wait for it after each turn.
        self.env = inherited | {"MOBILE_TOKEN": TOKEN, "MOBILE_IDLE_AFTER_MS": "100"} | settings
        self.process: subprocess.Popen[str] | None = None
        self.lines: list[str] = []
        self.port = 0
        self.started_in = 0.0

    def launch(self) -> None:
        """Starts it and waits until it says where it listens."""
        command = [str(self.binary), "serve", "--port", "0", "--state", str(self.state), "--agent", self.agent]
        began = time.monotonic()
        self.process = subprocess.Popen(
            command, env=self.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, stdin=subprocess.DEVNULL
        )
        ports: queue.Queue[int | None] = queue.Queue()
        threading.Thread(target=self._read, args=(self.process, ports), daemon=True).start()
        try:
            port = ports.get(timeout=PATIENCE)
        except queue.Empty:
            port = None
        self.started_in = time.monotonic() - began
        if port is None:
            self.kill()
            raise AssertionError("the gateway did not start:\n" + "\n".join(self.lines[-40:]))
        self.port = port

    def _read(self, process: subprocess.Popen[str], ports: queue.Queue[int | None]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self.lines.append(line.rstrip())
            if found := re.search(r"listening on \S*?:(\d+)", line):
                ports.put(int(found.group(1)))
        ports.put(None)

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.port}/ws"

    def kill(self) -> None:
        """kill -9."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def terminate(self) -> int:
        """SIGTERM; waits for the end and returns the exit code."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=PATIENCE)

    def __enter__(self) -> Self:
        self.launch()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


class Device:
    """One app: Python `websockets` with all its defaults (1 MiB a message among them)."""

    def __init__(self, gateway: Gateway, name: str, *, token: str = TOKEN, **hello: Any) -> None:
        self.gateway, self.name, self.token, self.hello = gateway, name, token, hello
        self.socket: ClientConnection | None = None
        self.ready: Frame = {}
        # Every frame ever read, over all connections.
        self.seen: list[Frame] = []
        self.screen = Screen()
        # Its stack answers no ping: what it reads is never proven.
        self.deaf = False
        # Set when a pong went out after the last frame that carries a `seq`.
        self.proven = asyncio.Event()

    async def open(self) -> Frame:
        self.socket = await connect(self.gateway.url)
        self._watch(self.socket)
        await self.send(t="hello", token=self.token, device={"id": self.name, "name": self.name}, **self.hello)
        self.ready = await self.until(lambda frame: frame["t"] in {"ready", "error"})
        assert self.ready["t"] == "ready", self.ready
        return self.ready

    def _watch(self, socket: ClientConnection) -> None:
        """Looks at the frames below the library's interface, where it answers pings by itself, in order."""
        protocol = socket.protocol
        receive, send = protocol.recv_frame, protocol.send_frame

        def recv_frame(frame: WebSocketFrame) -> None:
            if frame.opcode is Opcode.TEXT and b'"seq":' in frame.data:
                self.proven.clear()
            receive(frame)

        def send_frame(frame: WebSocketFrame) -> None:
            if frame.opcode is not Opcode.PONG:
                send(frame)
            elif not self.deaf:
                send(frame)
                self.proven.set()

        protocol.recv_frame, protocol.send_frame = recv_frame, send_frame  # type: ignore[method-assign]

    async def send(self, **frame: Any) -> None:
        assert self.socket is not None
        await self.socket.send(json.dumps(frame, ensure_ascii=False))

    async def text(self, text: str, **fields: Any) -> None:
        await self.send(t="text", text=text, **fields)

    async def next(self) -> Frame:
        assert self.socket is not None
        frame: Frame = json.loads(await asyncio.wait_for(self.socket.recv(), PATIENCE))
        self.seen.append(frame)
        self.screen.show(frame)
        return frame

    async def until(self, wanted: Wanted) -> Frame:
        """Reads up to the first frame that is wanted."""
        while True:
            if wanted(frame := await self.next()):
                return frame

    async def frames_until(self, wanted: Wanted) -> list[Frame]:
        """The same, with all frames on the way; the wanted one is the last."""
        start = len(self.seen)
        await self.until(wanted)
        return self.seen[start:]

    def since_ready(self) -> list[Frame]:
        """What came on this connection after `ready`."""
        last = max(number for number, frame in enumerate(self.seen) if frame["t"] == "ready")
        return self.seen[last + 1 :]

    async def ask(self, text: str, part: str = "", **fields: Any) -> str:
        """Says something and returns the whole text of the message that answers it."""
        await self.text(text, **fields)
        return self.screen.texts[(await self.until(final_message(part)))["id"]]

    async def settled(self) -> None:
        """Until the turn is over."""
        await self.until(is_a("avatar", state="idle"))

    async def close(self) -> None:
        if self.socket is not None:
            await self.socket.close()

    def cut(self) -> None:
        """The line is gone: no close frame, no goodbye."""
        assert self.socket is not None
        self.socket.transport.abort()


@contextlib.asynccontextmanager
async def opened(gateway: Gateway, name: str, **hello: Any) -> AsyncIterator[Device]:
    device = Device(gateway, name, **hello)
    await device.open()
    try:
        yield device
    finally:
        await device.close()


class Screen:
    """What a person sees: bubbles by id, files, cards; drawn by the rules that every client follows."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self.complete: set[str] = set()
        self.files: dict[str, bytes] = {}
        self.cards: dict[str, Frame] = {}
        self.seqs: list[int] = []
        self._parts: dict[str, dict[int, bytes]] = {}

    def show(self, frame: Frame) -> None:
        if "seq" in frame:
            self.seqs.append(frame["seq"])
        match frame["t"]:
            case "message":
                whole = frame.get("edit") or frame["chunk"]["index"] == 0
                self.texts[frame["id"]] = ("" if whole else self.texts[frame["id"]]) + frame["text"]
                if frame["final"]:
                    self.complete.add(frame["id"])
            case "media":
                parts = self._parts.setdefault(frame["id"], {})
                parts[frame["part"]] = base64.b64decode(frame["data"], validate=True)
                if frame["final"]:
                    data = b"".join(parts[number] for number in range(frame["parts"]))
                    assert len(data) == frame["size"]
                    self.files[frame["id"]] = data
            case "prompt":
                self.cards[frame["id"]] = frame
            case "prompt_done":
                self.cards.pop(frame["id"], None)


class Wscat:
    """`wscat` at a terminal, as a person uses it: keys go in, what it prints is read."""

    INCOMING = re.compile(rb"\x1b\[34m< (.*?)\x1b\[39m\r?\n", re.DOTALL)
    CLOSED = re.compile(rb"Disconnected \(code: (\d+)")

    def __init__(self, url: str, *headers: str) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 500, 0, 0))
        options = itertools.chain.from_iterable(("-H", header) for header in headers)
        # A dumb terminal: without it readline redraws the whole line at each key.
        self.process = subprocess.Popen(
            [str(WSCAT), "-c", url, *options], stdin=slave, stdout=slave, stderr=slave,
            env=os.environ | {"TERM": "dumb"}, start_new_session=True,
        )  # fmt: skip
        os.close(slave)
        self._frames: queue.Queue[Frame | None] = queue.Queue()
        self._connected = threading.Event()
        self.printed = b""
        self.seen: list[Frame] = []
        threading.Thread(target=self._read, daemon=True).start()
        assert self._connected.wait(PATIENCE), self.printed

    def _read(self) -> None:
        rest = b""
        # The terminal reports an error instead of an end when the other side is gone.
        with contextlib.suppress(OSError):
            while data := os.read(self._master, 65536):
                self.printed += data
                if b"Connected" in self.printed:
                    self._connected.set()
                rest += data
                end = 0
                for found in self.INCOMING.finditer(rest):
                    self._frames.put(json.loads(found.group(1)))
                    end = found.end()
                rest = rest[end:]
        self._frames.put(None)
        self._connected.set()

    def enter(self, frame: Frame | str) -> None:
        line = frame if isinstance(frame, str) else json.dumps(frame, ensure_ascii=False)
        data = (line + "\n").encode()
        while data:
            data = data[os.write(self._master, data[:1024]) :]

    def expect(self, wanted: Wanted) -> Frame:
        """Reads up to the first frame that is wanted."""
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                frame = self._frames.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"did not come; came: {self.seen[-10:]}") from None
            assert frame is not None, f"the connection ended; came: {self.seen[-10:]}"
            self.seen.append(frame)
            if wanted(frame):
                return frame

    def frames_until(self, wanted: Wanted) -> list[Frame]:
        start = len(self.seen)
        self.expect(wanted)
        return self.seen[start:]

    def hello(self, name: str, token: str = TOKEN, **fields: Any) -> Frame:
        device = {"id": name, "name": "QA", "platform": "cli", "app_version": "0.0.1"}
        self.enter({"t": "hello", "token": token, "device": device, **fields})
        return self.expect(lambda frame: frame["t"] in {"ready", "error"})

    def close_code(self) -> int:
        """The code that wscat prints when the server has closed."""
        self.process.wait(timeout=PATIENCE)
        while self._frames.get(timeout=PATIENCE) is not None:
            pass
        found = self.CLOSED.search(self.printed)
        assert found, self.printed[-500:]
        return int(found.group(1))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self._master)


def pattern(size: int) -> bytes:
    """The bytes of the demo agent's `/file N`."""
    return (bytes(range(251)) * (size // 251 + 1))[:size]


def parts_of(data: bytes, size: int) -> Iterator[tuple[int, int, str]]:
    """(part, parts, base64) of a file that goes out in parts of `size` bytes."""
    total = max(1, -(-len(data) // size))
    for part in range(total):
        yield part, total, encode(data[part * size : (part + 1) * size])


def strictly_rising(numbers: Iterable[int]) -> bool:
    return all(a < b for a, b in itertools.pairwise(numbers))


async def close_code(socket: ClientConnection) -> int:
    """Waits until the server has closed and returns its code."""
    with contextlib.suppress(websockets.ConnectionClosed):
        while True:
            await asyncio.wait_for(socket.recv(), PATIENCE)
    assert socket.close_code is not None
    return socket.close_code
