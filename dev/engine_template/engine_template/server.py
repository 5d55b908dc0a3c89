"""A server that sleeps: it only stands where yours will, so that the template can be run.

It listens on loopback and ends with SIGINT, SIGTERM, or after an hour.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import struct
import threading
import time
import zlib
from http.server import BaseHTTPRequestHandler, HTTPServer

_STEP_S = 0.1
_LONGEST_BODY = 1 << 16
_LIFETIME_S = 3600.0


def main() -> None:
    """Serve until told to end."""
    parser = argparse.ArgumentParser(description="a server that sleeps")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--tp", type=int, default=1)
    parser.add_argument("--usp", type=int, default=1)
    options = parser.parse_args()
    ranks = options.tp * options.usp
    # Ulysses loses less to communication here than tensor parallelism does.
    step_s = _STEP_S / ranks * (1 + 0.3 * (options.tp - 1) + 0.02 * (options.usp - 1))
    print(f"started: {ranks} ranks, tp={options.tp} usp={options.usp}", flush=True)
    server = HTTPServer(("127.0.0.1", options.port), _handler(ranks, step_s))
    end = threading.Timer(_LIFETIME_S, server.shutdown)
    end.daemon = True
    end.start()
    with contextlib.suppress(KeyboardInterrupt):
        server.serve_forever()


def _handler(ranks: int, step_s: float) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/health" else 404)
            self.end_headers()

        def do_POST(self) -> None:
            size = min(int(self.headers.get("Content-Length", 0)), _LONGEST_BODY)
            asked = json.loads(self.rfile.read(size))
            steps = int(asked["steps"])
            print(f"request of {steps} steps", flush=True)
            begun = time.perf_counter()
            for _ in range(steps):
                time.sleep(step_s)
            took = time.perf_counter() - begun
            for rank in range(ranks):
                print(f"rank {rank}: loop took {took:.6f} s", flush=True)
            self.send_response(200)
            self.send_header("Content-Type", "image/png")
            self.end_headers()
            self.wfile.write(_picture(int(asked["width"]), int(asked["height"]), int(asked["seed"])))

        def log_message(self, *_: object) -> None:
            """Access lines are of no use here."""

    return Handler


def _picture(width: int, height: int, seed: int) -> bytes:
    """A PNG of grey noise, the same for the same seed."""
    noise = random.Random(seed)
    rows = b"".join(b"\0" + noise.randbytes(width) for _ in range(height))
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )


if __name__ == "__main__":
    main()
