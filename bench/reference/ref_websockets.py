"""A bare echo server on Python `websockets`: the same frames as the gateway with its `echo` agent, and nothing else.

`ref_websockets.py PORT` listens on 127.0.0.1 (0: any free port) and prints `listening on http://ADDRESS`. Settings
are those that the library's documentation recommends for speed and little memory: uvloop, no compression, no
keep-alive task for each connection.
"""

from __future__ import annotations

import itertools
import json
import logging
import os
import resource
import sys
from typing import Any

import uvloop
from websockets.asyncio.server import ServerConnection, serve

BACKLOG = 4096
LARGEST = 16 * 1024 * 1024
TOKEN = os.environ["MOBILE_TOKEN"]

# What `ready` says besides session and device; the same as the gateway without rate limits.
READY = {
    "avatar_url": "",
    "capabilities": {
        "text": True,
        "voice": True,
        "typing": True,
        "avatar_states": ["idle", "thinking", "speaking"],
        "media_in": ["image", "video", "document", "audio"],
        "media_out": ["image", "voice", "video", "document", "animation"],
        "prompts": ["exec_approval", "slash_confirm", "clarify"],
        "edit": True,
        "max_media_bytes": 8388608,
        "max_text_chars": 12000,
    },
    "limits": {
        "frame_bytes": 16777216,
        "frame_out_bytes": 983040,
        "text_chars": 12000,
        "caption_chars": 4000,
        "file_bytes": 8388608,
        "parts": 2048,
        "series": 8,
        "series_bytes": 8388608,
        "series_idle_ms": 120000,
        "chunk_chars": 2000,
        "frames_per_second": 0,
        "bytes_per_second": 0,
    },
}

messages = itertools.count(1)


def encode(frame: dict[str, Any]) -> str:
    return json.dumps(frame, ensure_ascii=False, separators=(",", ":"))


async def device(socket: ServerConnection) -> None:
    seq = 0
    async for raw in socket:
        frame = json.loads(raw)
        match frame["t"]:
            case "text":
                seq += 1
                reply = {
                    "t": "message",
                    "id": f"m{next(messages):032x}",
                    "text": frame["text"],
                    "chunk": {"index": 0, "total": 1},
                    "final": True,
                    "seq": seq,
                }
                await socket.send(encode(reply))
            case "ping":
                await socket.send(encode({"t": "pong", "ts": frame["ts"]}))
            case "hello":
                if frame["token"] != TOKEN:
                    await socket.close(1008)
                    return
                name = frame["device"]["id"]
                head = {"t": "ready", "v": 1, "session": f"mobile:{name}", "device": {"id": name, "name": name}}
                await socket.send(encode(head | READY))


async def main(port: int) -> None:
    async with serve(
        device, "127.0.0.1", port, compression=None, ping_interval=None, max_size=LARGEST, backlog=BACKLOG
    ) as server:
        host, port = next(iter(server.sockets)).getsockname()[:2]
        print(f"listening on http://{host}:{port}", flush=True)
        await server.serve_forever()


if __name__ == "__main__":
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    # Devices that vanish are part of what is measured.
    logging.getLogger("websockets").setLevel(logging.CRITICAL)
    uvloop.run(main(int(sys.argv[1])))
