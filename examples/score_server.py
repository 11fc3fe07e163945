"""Scores over HTTP, from the standard library alone.

    python examples/score_server.py BANK RELEASE [PORT]
    curl -d '{"responses": {"item-17": 1, "item-18": 0}}' http://127.0.0.1:8765/score

The release is loaded once; requests are answered side by side, a thread each.
"""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import concal
from concal.score.scorer import Scorer

LARGEST = 1_000_000  # bytes of a request


def make_server(scorer: Scorer, release: str, port: int = 8765) -> ThreadingHTTPServer:
    """A server on this machine that answers POST /score and GET /health."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.answer(200 if self.path == "/health" else 404, {"release": release})

        def do_POST(self) -> None:
            if self.path != "/score":
                return self.answer(404, {"error": "POST to /score"})
            try:
                length = int(self.headers.get("Content-Length") or 0)
                if not 0 < length <= LARGEST:
                    raise ValueError("the body must be JSON of at most a megabyte")
                asked = json.loads(self.rfile.read(length))
                responses = {str(item): float(score) for item, score in asked["responses"].items()}
                found = scorer.score(responses, unknown=asked.get("unknown", "error"))
            except (ValueError, TypeError, KeyError, AttributeError, concal.ConcalError) as error:
                return self.answer(400, {"error": str(error) or type(error).__name__})
            told = ("theta", "se", "n", "reported", "se_reported", "unknown")
            self.answer(200, {"release": release, **{name: getattr(found, name) for name in told}})

        def answer(self, status: int, content: dict) -> None:
            body = json.dumps(content).encode("utf-8")
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing; a program that serves people has its own log."""

    return ThreadingHTTPServer(("127.0.0.1", port), Handler)


if __name__ == "__main__":
    bank, release = sys.argv[1:3]
    server = make_server(concal.Bank(bank).at(release).scorer(), release, int((sys.argv[3:] or ["8765"])[0]))
    print(f"scoring from {release} at http://{server.server_address[0]}:{server.server_address[1]}/score")
    server.serve_forever()
