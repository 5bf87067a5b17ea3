"""The world outside, as a process of its own: services that the agents ask, and that keep count.

| request | what it does | for steps that are |
|---|---|---|
| `GET /weather`, `/stock`, `/news` | tells something that depends on the run only | read-only |
| `POST /model` | answers a prompt, the same for the same one | a model call |
| `POST /notifications` | notifies somebody, each time that it is asked | once |
| `GET /notifications/<key>` | says whether it did: the probe | |
| `POST /bookings` | books, once for each key | idempotent |
| `GET /ledger` | everything that was asked | |

Every request says under which fencing token its worker has the run. The world remembers the highest of each run,
and refuses what comes under a lower one: a request of a killed worker may still be on its way.
"""

from __future__ import annotations

import hashlib
import json
import random
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

LOCK = threading.Lock()
LEDGER: list[dict[str, object]] = []
FENCES: dict[str, int] = {}
DONE: set[tuple[str, str]] = set()


def word(*of: str) -> str:
    """Eight digits that depend on nothing but these."""
    return hashlib.sha256("\n".join(of).encode()).hexdigest()[:8]


def passes(run: str, token: int) -> bool:
    FENCES[run] = max(token, FENCES.get(run, 0))
    return FENCES[run] == token


class World(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.answer(b"")

    def do_POST(self) -> None:
        self.answer(self.rfile.read(int(self.headers["content-length"])))

    def answer(self, body: bytes) -> None:
        status, text = self.handle_it(body.decode())
        reply = text.encode()
        self.send_response(status)
        self.send_header("content-length", str(len(reply)))
        self.end_headers()
        self.wfile.write(reply)

    def handle_it(self, body: str) -> tuple[int, str]:
        if self.path == "/ledger":
            with LOCK:
                return 200, json.dumps(LEDGER)
        run, key = self.headers["x-run"], self.headers["idempotency-key"]
        token = int(self.headers["x-fence"])
        if self.path.startswith("/notifications/"):
            with LOCK:
                if not passes(run, token):
                    return 409, "another worker has this run"
                return (200, f"notified {key}") if ("/notifications", key) in DONE else (404, "")
        # Time to be killed in, before and after something is done.
        time.sleep(random.random() / 250)
        with LOCK:
            refused = not passes(run, token)
            done_before = self.path == "/bookings" and (self.path, key) in DONE
            applied = not refused and not done_before
            if applied:
                DONE.add((self.path, key))
            LEDGER.append({"path": self.path, "run": run, "key": key, "applied": applied, "refused": refused})
        if refused:
            return 409, "another worker has this run"
        time.sleep(random.random() / 250)
        match self.path:
            case "/model":
                return 200, f"thought {word(body)}"
            case "/notifications":
                return 200, f"notified {key}"
            case "/bookings":
                return 200, f"booked {key}"
            case _:
                return 200, f"{self.path} for {run}: {word(self.path, run)}"

    def log_message(self, format: str, *args: object) -> None:
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        pass  # Who asked is dead.


def main() -> None:
    server = Server(("127.0.0.1", 0), World)
    print(server.server_port, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
