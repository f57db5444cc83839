"""A stand-in for vLLM's server: its completions protocol, from its public documentation, on top of a real model here.

It is no vLLM: no GPU, no batches, none of its code. What it has of vLLM is what goes over the wire (prompts as token
ids, `prompt_logprobs`, `n`, `return_token_ids`, /version, /v1/models with max_model_len) and how it refuses: more
log-probs than --max-logprobs, prompts beyond the context, models that it does not have. `Faults` are what else goes
wrong.

    with VllmServer(model) as server:
        served = rote.load(server.model)

It computes each prompt alone with transformers' own forward pass, and samples with a plain loop: no code of Rote's.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

import numpy as np
import torch

from rote.models.base import BUNDLED

NAME = "bundled"


@dataclass
class Faults:
    """`processed`: log-probs after temperature and top-k, as old versions list those of prompts. `half`: logits are
    rounded to bfloat16. `ignores`: it knows no prompt_logprobs. `truncates`: prompts to so many tokens. `nan`:
    log-probs that are none. `drops`: how many requests it closes without an answer. `busy`: how many it refuses.
    `broken`: how many it answers with half a JSON. `noise`: how far logits move by chance. `old`: it gives no ids.
    `capped`: it lists so many log-probs, however many were asked for. `raw`: it lists logits, less by so much.
    """

    processed: bool = False
    half: bool = False
    ignores: bool = False
    truncates: int | None = None
    nan: bool = False
    drops: int = 0
    busy: int = 0
    broken: int = 0
    noise: float = 0.0
    old: bool = False
    capped: int | None = None
    raw: float | None = None


class VllmServer:
    """`max_logprobs` and `max_model_len` are vLLM's options; `latency`: seconds that each answer takes more."""

    def __init__(
        self, model: Any, *, max_logprobs: int = 64, max_model_len: int = 512, faults: Faults | None = None,
        latency: float = 0.0, key: str | None = None, misbehave: Callable[[int], None] = lambda number: None,
    ) -> None:  # fmt: skip
        self.network, self.tokenizer = model._model, model.tokenizer
        self.max_logprobs, self.max_model_len, self.latency, self.key = max_logprobs, max_model_len, latency, key
        self.faults, self.misbehave = faults or Faults(), misbehave
        self.bodies: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.lock = threading.Lock()
        self.text_of = cache(lambda token: self.tokenizer.decode([token]))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def model(self) -> str:
        return f"vllm:{self.url}/{NAME}"

    def __enter__(self) -> Self:
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._http.daemon_threads = True
        self.port = self._http.server_address[1]
        threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()

    def _handler(own) -> type[BaseHTTPRequestHandler]:
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: Any) -> None: ...

            def do_GET(self) -> None:
                own.paths.append(self.path)
                if self.path == "/version":
                    self.answer(200, {"version": "0.15.0"})
                elif self.path == "/v1/models":
                    self.answer(200, {"object": "list", "data": [{"id": NAME, "max_model_len": own.max_model_len}]})
                else:
                    self.answer(404, {"detail": "Not Found"})

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with own.lock:
                    own.bodies.append(body)
                    number = len(own.bodies)
                own.misbehave(number)
                time.sleep(own.latency)
                faults = own.faults
                if own.key is not None and self.headers.get("Authorization") != f"Bearer {own.key}":
                    self.answer(401, {"error": "Unauthorized"})
                elif own.counted_down("drops"):
                    self.close_connection = True
                elif own.counted_down("busy"):
                    self.answer(429, own.error("Too many requests", 429))
                elif own.counted_down("broken"):
                    self.send_text(200, '{"choices": [{"prompt_lo')
                else:
                    self.answer(*own.completion(body, faults))

            def answer(self, status: int, content: Any) -> None:
                self.send_text(status, json.dumps(content))

            def send_text(self, status: int, text: str) -> None:
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(text.encode())))
                self.end_headers()
                self.wfile.write(text.encode())

        return Handler

    def counted_down(self, fault: str) -> bool:
        with self.lock:
            left = int(getattr(self.faults, fault))
            setattr(self.faults, fault, max(left - 1, 0))
            return left > 0

    @staticmethod
    def error(message: str, code: int, kind: str = "BadRequestError") -> dict[str, Any]:
        return {"error": {"message": message, "type": kind, "param": None, "code": code}}

    # --- what it serves

    def completion(self, body: dict[str, Any], faults: Faults) -> tuple[int, dict[str, Any]]:
        tokens, count, most = body["prompt"], body.get("prompt_logprobs"), body.get("max_tokens", 16)
        if body["model"] != NAME:
            return 404, self.error(f"The model `{body['model']}` does not exist.", 404, "NotFoundError")
        if isinstance(tokens, str):
            tokens = self.tokenizer.encode(tokens, add_special_tokens=body.get("add_special_tokens", True))
        if faults.truncates is not None:
            tokens = tokens[-faults.truncates :]
        if count is not None and count > self.max_logprobs:
            told = f"Requested prompt logprobs of {count}, which is greater than max allowed: {self.max_logprobs}"
            return 400, self.error(told, 400)
        if len(tokens) + most > self.max_model_len:
            return 400, self.error(
                f"This model's maximum context length is {self.max_model_len} tokens. However, your request has "
                f"{len(tokens)} input tokens. Please reduce the length of the input messages.", 400,
            )  # fmt: skip
        rng = np.random.default_rng(body.get("seed"))
        choices = []
        for index, written in enumerate(self.written(tokens, body, most, rng)):
            choice = {"index": index, "text": self.tokenizer.decode(written), "finish_reason": "length"}
            if body.get("return_token_ids") and not faults.old:
                choice["token_ids"] = written
            if count is not None and not faults.ignores:
                choice["prompt_logprobs"] = self.listed(tokens, count, body, faults)
            choices.append(choice)
        usage = {"prompt_tokens": len(tokens), "completion_tokens": most, "total_tokens": len(tokens) + most}
        return 200, {"object": "text_completion", "model": NAME, "choices": choices, "usage": usage}

    @torch.inference_mode()
    def logits(self, rows: list[list[int]]) -> torch.Tensor:
        logits: torch.Tensor = self.network(input_ids=torch.tensor(rows), use_cache=False).logits.float()
        if self.faults.noise:
            logits = logits + self.faults.noise * torch.randn_like(logits)
        return logits.bfloat16().float() if self.faults.half else logits

    def listed(self, tokens: list[int], count: int, body: dict[str, Any], faults: Faults) -> list[Any]:
        logits = self.logits([tokens])[0]
        if faults.processed:
            logits = logits / (body.get("temperature") or 1.0)
        log_probs = logits.log_softmax(-1) if faults.raw is None else logits - faults.raw
        places: list[Any] = [None]
        count = min(count, faults.capped or count)
        for place, token in enumerate(tokens[1:]):
            row = log_probs[place]
            values, ids = row.topk(count)
            own = {token: (float(row[token]), int((row >= row[token]).sum()))}
            likeliest = {int(i): (float(v), rank) for rank, (v, i) in enumerate(zip(values, ids, strict=True), 1)}
            entries = {
                str(i): {"logprob": max(v, -9999.0), "rank": rank, "decoded_token": self.text_of(i)}
                for i, (v, rank) in {**own, **likeliest}.items()
            }
            if faults.nan:
                entries[str(token)]["logprob"] = float("nan")
            places.append(entries)
        return places

    def written(self, tokens: list[int], body: dict[str, Any], most: int, rng: np.random.Generator) -> list[list[int]]:
        """`n` outputs, sampled side by side; what comes after a prompt that is scored is looked at by nobody."""
        count = body.get("n", 1)
        if body.get("prompt_logprobs") is not None:
            return [[0] * most] * count
        rows = [list(tokens) for _ in range(count)]
        for _ in range(most):
            for history, logits in zip(rows, self.logits(rows)[:, -1].double().numpy(), strict=True):
                greedy = body["temperature"] == 0
                history.append(int(logits.argmax()) if greedy else self.draw(logits, body, rng))
        return [history[len(tokens) :] for history in rows]

    @staticmethod
    def draw(row: np.ndarray, body: dict[str, Any], rng: np.random.Generator) -> int:
        """Temperature, min-p, top-k, top-p: in vLLM's order."""
        weights = np.exp((row - row.max()) / body["temperature"])
        weights[weights < body["min_p"] * weights.max()] = 0.0
        if body["top_k"] > 0:
            weights[weights < np.sort(weights)[-body["top_k"]]] = 0.0
        if body["top_p"] < 1:
            order = np.argsort(-weights, kind="stable")
            before = np.cumsum(weights[order]) - weights[order]
            weights[order[before >= body["top_p"] * weights.sum()]] = 0.0
        return int(rng.choice(len(row), p=weights / weights.sum()))


def options(**more: Any) -> Any:
    """How its model is loaded: its tokenizer is the bundled model's."""
    import rote

    return rote.ModelOptions(tokenizer=str(BUNDLED), **more)
