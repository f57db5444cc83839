"""How long asking a chat server takes beside the ideal, with the store of answers and the ledger in the way.

    python -m benchmarks.probe

The server, a process of its own on this machine, answers in 200 ms and allows 32 questions on their way; more are
refused with 429. So 3,200 questions take 20 s at best. The peers ask the same server: the obvious loop, one question
after the other, which asks a sample and is scaled up, and 32 threads without store or ledger that ask all of them.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path

import httpx2
from tests.chatserver import ChatServer

from rote.models.chat import Endpoint, load_chat
from rote.models.probed import Question
from rote.probes.asking import Budget, Ledger, ask
from rote.store.answers import Answers

LATENCY = 0.2
ALLOWED = 32
PASSAGE = (
    "Alice was beginning to get very tired of sitting by her sister on the [MASK], and of having nothing to do. " * 6
)


def serve(ours: Connection) -> None:
    """Answer until told to stop; whenever asked, tell how many requests came in and were refused since."""
    with ChatServer(lambda prompt: "<word>bank</word>", latency=LATENCY, allowed=ALLOWED) as server:
        ours.send(server.model)
        while ours.recv():
            told = len(server.requests), server.refused, server.most_flying
            for kept in (server.requests, server.headers, server.times, server.beside):
                kept.clear()
            server.refused = server.most_flying = 0
            ours.send(told)  # last: what is asked from now on is the next row's


def plain(client: httpx2.Client, url: str, question: Question) -> str:
    base, _, name = url.rpartition("/")
    body = {"model": name, "messages": [{"role": "user", "content": question.prompt}], "max_tokens": question.tokens}
    while (reply := client.post(f"{base}/chat/completions", json=body, timeout=60)).status_code == 429:
        time.sleep(1)
    return str(json.loads(reply.content)["choices"][0]["message"]["content"])


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--questions", type=int, default=3200)
    parser.add_argument("--sample", type=int, default=50)
    given = parser.parse_args(arguments)
    questions = [Question(prompt=f"{number}. {PASSAGE}", tokens=24) for number in range(given.questions)]
    ideal = len(questions) * LATENCY / ALLOWED
    ours, theirs = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(target=serve, args=(theirs,), daemon=True)
    server.start()
    url = ours.recv()
    print(
        f"{os.cpu_count()} cores; {len(questions):,} questions of about {len(PASSAGE)} characters; ideal {ideal:g} s\n"
    )
    print("| how | asked | seconds | times the ideal | requests sent | refused | most on their way |")
    print("|---|---|---|---|---|---|---|")

    def row(how: str, asked: int, seconds: float) -> None:
        ours.send(True)
        sent, refused, most = ours.recv()
        print(
            f"| {how} | {asked:,} | {seconds:.1f} | {seconds / ideal:.2f} | {sent:,} | {refused} | {most} |", flush=True
        )

    with tempfile.TemporaryDirectory() as scratch, Answers(Path(scratch, "answers.sqlite")) as store:
        model = load_chat(url, Endpoint(price="1,1", concurrency=ALLOWED))
        ledger = Ledger(model.price, Budget(1000.0))
        began = time.perf_counter()
        found = ask(model, questions, store, ledger)
        row("rote, with store and ledger", len(questions), time.perf_counter() - began)
        assert all(answer.text == "<word>bank</word>" for answer in found)
        assert len(store) == len(questions)
        began = time.perf_counter()
        assert ask(model, questions, store, ledger) == found
        row("rote, the same again", len(questions), time.perf_counter() - began)
    with httpx2.Client(trust_env=False) as client:
        began = time.perf_counter()
        for question in questions[: given.sample]:
            plain(client, url, question)
        scaled = (time.perf_counter() - began) * len(questions) / given.sample
        row("one after the other, scaled up", given.sample, scaled)
        with ThreadPoolExecutor(ALLOWED) as pool:
            began = time.perf_counter()
            list(pool.map(lambda question: plain(client, url, question), questions))
        row(f"{ALLOWED} threads, no store", len(questions), time.perf_counter() - began)
    ours.send(False)
    server.join(10)


if __name__ == "__main__":
    main()
