"""A provider of a language model that halts before the last word of each answer, until it may go on."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

WORDS = ("one", " two", " three", " four", " five", " six")
"""Each is one token."""
PROMPT_TOKENS = 9


class HaltingProvider(ThreadingHTTPServer):
    """Speaks OpenAI's protocol. An answer has as many words as the call's `max_tokens`."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.halts = threading.Event()
        self.may_go_on = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"

    def halt(self) -> None:
        """Let the next answers halt."""
        self.halts.clear()
        self.may_go_on.clear()

    def wait(self) -> None:
        self.halts.set()
        self.may_go_on.wait()


class _Handler(BaseHTTPRequestHandler):
    server: HaltingProvider

    def do_POST(self) -> None:
        call = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        words = WORDS[: call["max_tokens"]]
        # The proxy may hang up.
        with suppress(OSError):
            self._stream(*words) if call.get("stream") else self._answer("".join(words), len(words))

    def _stream(self, *words: str) -> None:
        self._begin("text/event-stream")
        for word in words[:-1]:
            self._write(_completion("delta", word, None), "data: ", "\n\n")
        self.server.wait()
        self._write(_completion("delta", words[-1], "stop"), "data: ", "\n\ndata: [DONE]\n\n")

    def _answer(self, text: str, tokens: int) -> None:
        self.server.wait()
        self._begin("application/json")
        usage = {"prompt_tokens": PROMPT_TOKENS, "completion_tokens": tokens, "total_tokens": PROMPT_TOKENS + tokens}
        self._write(_completion("message", text, "stop") | {"usage": usage})

    def _begin(self, content_type: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", content_type)
        self.end_headers()

    def _write(self, body: dict[str, Any], before: str = "", after: str = "") -> None:
        self.wfile.write(f"{before}{json.dumps(body)}{after}".encode())

    def log_message(self, *_: object) -> None:
        """Write no log."""


def _completion(part: str, text: str, finish_reason: str | None) -> dict[str, Any]:
    choice = {"index": 0, part: {"role": "assistant", "content": text}, "finish_reason": finish_reason}
    return {"id": "1", "object": "chat.completion", "created": 1, "model": "gpt-4o", "choices": [choice]}


@contextmanager
def halting_provider() -> Iterator[HaltingProvider]:
    """A provider that answers in a thread of its own until the end of the block."""
    with HaltingProvider() as provider:
        serving = threading.Thread(target=provider.serve_forever, kwargs={"poll_interval": 0.01})
        serving.start()
        try:
            yield provider
        finally:
            provider.may_go_on.set()
            provider.shutdown()
            serving.join()
