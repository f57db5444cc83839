"""Models behind an OpenAI-compatible completions endpoint: they score given suffixes from listed log-probs, and write.

Two kinds of servers are known, each with a module that says what to send and reads what comes: vLLM's
(`rote.models.vllm`), and those that echo a prompt with its log-probs (`rote.models.echo`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np

from rote.errors import InputError, ModelError, argument, counted
from rote.listed import Listed, ListedScores, listed_scores, refuse_unlistable
from rote.models.base import ModelIdentity, ModelOptions, ServedModel
from rote.models.chat import address_of, environment
from rote.models.dialect import Dialect
from rote.models.fingerprint import tokenizer_hash
from rote.models.http import Server
from rote.models.promptlists import Lists, Odd
from rote.models.replies import Headers, Reply, Verdict, by_status
from rote.models.stopped import LENGTH, QUOTA, error_in, status_of, why_stopped
from rote.scheme import Scheme
from rote.tokens import BosPolicy, Example

if TYPE_CHECKING:
    from numpy.typing import NDArray

LARGEST = 256 << 20
"""Bytes of a reply: a long prompt with hundreds of log-probs at each position takes megabytes."""

PROBE = "The quick brown fox jumps over the lazy dog, and then it"
"""What every server is asked first: whether its numbers are the model's own, and how far they move."""

FEWER = 8
"""Of how many listed tokens one may be lost where lists are keyed by text, as tokens may share it."""

GRIDS: tuple[tuple[Literal["bfloat16", "float16"], int], ...] = (("bfloat16", 10), ("float16", 13))
"""Log-probs of logits with so few bits are apart by multiples of 2 ** -n, for logits that are not close to 0."""

OTHERS: dict[Literal["vllm", "server"], str] = {
    "vllm": "One that is not vLLM's, and echoes prompts with their log-probs, is asked as server:http://HOST/v1/NAME.",
    "server": "vLLM's is asked as vllm:http://HOST/v1/NAME.",
}
"""Where a server of the other kind may have been meant."""

Read = TypeVar("Read")


class ServedCompletions:
    """A `SuffixScorer` and a `ServedGenerator`."""

    def __init__(
        self, server: Server, dialect: Dialect, model: str, tokenizer: Any, bos_id: int | None, options: ModelOptions,
        tokenizer_from: str, warnings: tuple[str, ...] = (),
    ) -> None:  # fmt: skip
        self._server, self._dialect, self._options, self._model = server, dialect, options, model
        self._proven, self._tokenizer_from = False, tokenizer_from
        self.tokenizer, self.bos_id, self.warnings = tokenizer, bos_id, warnings
        self.bos_policy: BosPolicy = options.bos
        self.vocabulary = 1 + max(tokenizer.get_vocab().values())
        self.listed = min(options.listed, self.vocabulary)
        own = getattr(tokenizer, "eos_token_id", None)
        self.eos_ids: frozenset[int] = frozenset() if own is None else frozenset({int(own)})
        self.context_length = self._told_context()
        self.dtype = self._probed()
        self._version = dialect.version(server)

    def __repr__(self) -> str:
        return f"<{self.identity().title}, served by {self._server.base}; weights cannot be checked>"

    @property
    def logit_tolerance(self) -> float:
        from rote.models.quantised import tolerance_of

        return tolerance_of(self.dtype)

    def identity(self) -> ModelIdentity:
        base, kind = self._server.base, self._dialect.kind
        return ModelIdentity(
            name=f"{kind}:{base}/{self._model}",
            label=self._options.label,
            revision=None,
            trust_remote_code=False,
            fingerprint=None,
            hashed=None,
            parameters=None,
            dtype=self.dtype,
            device="server",
            compiled=False,
            tokenizer=tokenizer_hash(self.tokenizer),
            bos=self.bos_policy,
            bos_token=self.bos_id,
            bos_text=None if self.bos_id is None else str(self.tokenizer.convert_ids_to_tokens(self.bos_id)),
            served=ServedModel(
                url=base, protocol=kind, model=self._model, version=self._version, tokenizer=self._tokenizer_from,
                listed=self.listed, sent=dict(self._dialect.beside),
            ),
        )  # fmt: skip

    # --- scoring

    def refuse(self, examples: Sequence[Example], schemes: Sequence[Scheme]) -> None:
        for scheme in schemes:
            refuse_unlistable(scheme, self.listed, self.vocabulary)
        if unsendable := self._dialect.unsendable([(*e.prefix, *e.suffix) for e in examples]):
            first = examples[unsendable[0]].id
            raise InputError(
                f"{len(unsendable):,} of {counted(len(examples), 'example')} (the first: {first!r}) are not "
                f"the tokens that their text becomes when it is read again, and {self._server.base} takes texts alone: "
                "it would score other tokens. Have the model served by vLLM, which takes token ids, and ask it as "
                "vllm:http://HOST/v1/NAME. Or cut windows that end with a word, as a scan does with "
                f"{argument('unit', 'characters')}; or leave these examples out."
            )

    def score_suffixes(self, examples: Sequence[Example], schemes: Sequence[Scheme]) -> Iterator[ListedScores]:
        """Examples are asked for side by side, and given in their order."""
        self.refuse(examples, schemes)
        prompts = [self._tokens(example) for example in examples]

        def read(place: int, content: Any) -> Listed:
            first = len(prompts[place]) - len(examples[place].suffix)
            return self._as_listed(self._dialect.lists(content, prompts[place], first, self.listed))

        bodies = (self._body(self._dialect.asked(prompt, self.listed)) for prompt in prompts)
        found = self._in_order(bodies, read, lambda place: f"example {examples[place].id!r}")
        for example, listed in zip(examples, found, strict=True):
            yield listed_scores(listed, example.suffix, schemes, self.vocabulary)

    def _tokens(self, example: Example) -> list[int]:
        return [*([] if self.bos_id is None else [self.bos_id]), *example.prefix, *example.suffix]

    def _without_bos(self, prompt: Sequence[int]) -> Sequence[int]:
        return prompt[1:] if self.bos_id is not None and prompt[:1] == [self.bos_id] else prompt

    def _as_listed(self, lists: Lists) -> Listed:
        # vLLM counts tokens that are as likely in its ranks, which only where nothing ties are ranks as we know them.
        ranks = lists.ranks if self.dtype == "float32" else None
        return Listed(own=lists.own, values=lists.values, ids=lists.ids, whole=lists.whole, ranks=ranks)

    # --- generating

    def generate(
        self, prompt: Sequence[int], scheme: Scheme, *, length: int, samples: int, seed: int
    ) -> Iterator[tuple[int, ...]]:
        """With the server's own sampler. It may not give the same outputs again: what else it works on may matter."""
        self._refuse_writing([self._without_bos(prompt)], scheme)
        rows = 1 if scheme.greedy else self._dialect.at_once
        sizes = [min(rows, samples - first) for first in range(0, samples, rows)]
        bodies = (
            self._body(self._dialect.drawn(prompt, scheme, length, size, seed_of(seed, number)))
            for number, size in enumerate(sizes)
        )

        def read(place: int, content: Any) -> list[tuple[int, ...]]:
            outputs = self._dialect.outputs(content, prompt, length)
            if len(outputs) != sizes[place]:
                raise Odd(f"gives {len(outputs)} outputs, and {sizes[place]} were asked for")
            return outputs

        for outputs in self._in_order(bodies, read, lambda place: "a prompt to go on from"):
            for output in outputs:
                end = next((i for i, token in enumerate(output) if token in self.eos_ids), len(output) - 1)
                yield output[: end + 1]

    def unwritable(self, examples: Sequence[Example]) -> list[str]:
        return [examples[place].id for place in self._dialect.unsendable([e.prefix for e in examples])]

    def refuse_writing(self, examples: Sequence[Example], schemes: Sequence[Scheme]) -> None:
        for scheme in schemes:
            self._refuse_writing([e.prefix for e in examples], scheme, lambda place: f"before {examples[place].id!r}")

    def _refuse_writing(
        self, prompts: Sequence[Sequence[int]], scheme: Scheme, called: Callable[[int], str] = lambda place: "asked for"
    ) -> None:
        if (why := self._dialect.refuse(scheme)) is not None:
            raise InputError(f"{self._server.base} cannot generate under {scheme}: {why}.")
        if odd := self._dialect.unsendable(prompts):
            raise InputError(
                f"the prompt {called(odd[0])} ({len(odd):,} of {len(prompts):,}) is read again as other tokens than it "
                f"was cut into, and {self._server.base} takes texts alone: it would go on from another one. Have the "
                "model served by vLLM, which takes token ids; or leave these examples out."
            )

    # --- asking

    def _body(self, own: dict[str, Any]) -> dict[str, Any]:
        return {"model": self._model, **own}

    def _in_order(
        self, bodies: Iterable[dict[str, Any]], read: Callable[[int, Any], Read], called: Callable[[int], str]
    ) -> Iterator[Read]:
        """What is read out of the replies, in the order of the requests."""
        held, due = dict[int, Read](), 0
        sent = self._server.post("completions", enumerate(bodies), self._judge, proven=self._proven)
        with closing(sent) as replies:
            for reply in replies:
                held[reply.place] = self._taken(reply, read, called(reply.place))
                while due in held:
                    yield held.pop(due)
                    due += 1

    def _taken(self, reply: Reply, read: Callable[[int, Any], Read], called: str) -> Read:
        base = self._server.base
        if reply.verdict == "stop":
            raise ModelError(self._wrong(reply))
        if reply.verdict == "refused" and LENGTH.search(error_in(reply.content)):
            raise ModelError(
                f"{base} does not take {called}: {reply.why.rstrip('. ')}. Use shorter prefixes or suffixes, or start "
                "it with a longer context; one token beyond prefix and suffix must fit."
            )
        if reply.verdict != "taken":
            slow = "no whole reply within" in reply.why
            fix = "" if self._proven else f"Its log may say why. {OTHERS[self._dialect.kind]} "
            if slow:
                fix = (
                    f"It may need longer, {argument('timeout')}, or fewer requests at once, "
                    f"{argument('concurrency', 1)}: some servers work on one alone. "
                )
            again = "Run the same command again to go on." if self._proven else ""
            raise ModelError(f"{base} gives no answer to {called}: {reply.why.rstrip('. ')}. {fix}{again}".rstrip())
        try:
            return read(reply.place, reply.content)
        except Odd as odd:
            raise ModelError(f"{base}, asked for {called}, {odd}.") from None

    def _judge(self, status: int, content: Any) -> Verdict:
        status = status_of(status, content)
        verdict = by_status(status, content)
        if verdict == "taken":
            self._proven = True
            return verdict
        said = error_in(content)
        if (status == 429 and QUOTA.search(said)) or "logits_all" in said:
            return "stop"
        if status in (400, 413, 422) and LENGTH.search(said) and "logprobs" not in said:
            return "refused"
        return "stop" if verdict == "refused" and not self._proven else verdict

    def _wrong(self, reply: Reply) -> str:
        said, base = error_in(reply.content), self._server.base
        if "logits_all" in said:
            return f"{base} lists no log-probs: {reply.why.rstrip('. ')}. Start it with --logits_all true."
        if "max allowed" in said or re.search(r"logprobs", said):
            return (
                f"{base} does not list {self.listed} log-probs at a position ({reply.why.rstrip('. ')}). Start it to "
                f"list as many (vLLM: --max-logprobs {self.listed}), or ask for fewer with {argument('listed')}: still "
                "well above the schemes' top-k."
            )
        return why_stopped(
            self._server, reply, path="completions", name=self._model, key=self._options.key, proven=self._proven,
            one="prompt", mend="Its log says more; check that it serves completions for this model.",
        )  # fmt: skip

    # --- what is found out first

    def _told_context(self) -> int | None:
        """As the server says: what is scored is fed whole, and one token must be generated."""
        told = self._server.get("models")
        data = told.get("data") if isinstance(told, dict) else None
        entries = [each for each in data if isinstance(each, dict)] if isinstance(data, list) else []
        names = [str(each.get("id")) for each in entries]
        if names and self._model not in names:
            raise ModelError(
                f"{self._server.base} does not know the model {self._model!r}. It has {', '.join(sorted(names)[:20])}."
            )
        most = next((each.get("max_model_len") for each in entries if each.get("id") == self._model), None)
        return most - 2 if isinstance(most, int) and most > 2 else None

    def _probed(self) -> Literal["float32", "bfloat16", "float16"]:
        """In what its numbers seem to be computed: by the steps between them, and by how far they move when asked for
        together with others."""
        tokens = [*([] if self.bos_id is None else [self.bos_id]), *_ids(self.tokenizer, PROBE)]
        try:
            self._dialect.probe(self._once, tokens, self.listed)
        except Odd as odd:
            raise ModelError(f"{self._server.base}, asked for a prompt to try it with, {odd}.") from None
        first = 1 + (self.bos_id is not None)

        def read(place: int, content: Any) -> Lists:
            return self._dialect.lists(content, prompts[place], first, self.listed)

        prompts = [tokens, *(tokens[: len(tokens) - cut] for cut in (0, 2, 4)), tokens]
        bodies = [self._body(self._dialect.asked(prompt, self.listed)) for prompt in prompts]
        alone = next(self._in_order(bodies[:1], read, lambda place: "a prompt to try it with"))
        apart = 0.0
        for lists in self._in_order(bodies, read, lambda place: "a prompt to try it with"):
            apart = max(apart, float(np.abs(lists.own - alone.own[: len(lists.own)]).max()))
        self._refuse_lists(alone)
        return fineness(alone.values, apart)

    def _refuse_lists(self, lists: Lists) -> None:
        """Refuse a server whose lists are shorter than they were asked to be, or are of no probabilities."""
        came = int(np.isfinite(lists.values).sum(1).max())
        if came < self.listed - self.listed // FEWER and not lists.whole.any():
            raise ModelError(
                f"{self._server.base} lists at most {counted(came, 'log-prob')} at a position, and {self.listed} were "
                f"asked for, so that hardly any scheme would be exact. Start it to list as many, or ask for fewer with "
                f"{argument('listed')}: still well above the schemes' top-k."
            )
        # The n likeliest of v tokens have n / v of the probability at the least, whatever the model.
        least = 0.5 * self.listed / self.vocabulary
        if (np.exp(lists.values[lists.whole]).sum(1) < least).any():
            raise ModelError(
                f"{self._server.base} lists numbers that are no log-probs: what is likeliest has less probability than "
                "tokens have on average. It may list logits; start it to list raw log-probs (vLLM: --logprobs-mode "
                "raw_logprobs, its default)."
            )

    def _once(self, body: dict[str, Any]) -> Any:
        """The JSON that one request gives."""
        return next(
            self._in_order([self._body(body)], lambda place, content: content, lambda place: "a prompt to try it with")
        )


def seed_of(seed: int, number: int) -> int:
    """The seed of a request, from that of a call and the request's number in it: 31 bits, which all servers take."""
    return int(np.random.SeedSequence([seed, number]).generate_state(1)[0]) >> 1


def fineness(values: NDArray[np.float64], apart: float) -> Literal["float32", "bfloat16", "float16"]:
    """The coarsest type whose rounding listed log-probs show, or whose tolerance they need, being so far `apart`."""
    from rote.models.quantised import tolerance_of

    steps = values - values[:, :1]
    steps = steps[np.isfinite(steps) & (steps < 0)]
    for dtype, bits in GRIDS:
        on = np.abs(steps * 2.0**bits - np.round(steps * 2.0**bits)) < 0.05
        if len(steps) and on.mean() > 0.9:
            return dtype
    kinds: tuple[Literal["float32", "float16"], ...] = ("float32", "float16")
    return next((dtype for dtype in kinds if 2 * apart <= tolerance_of(dtype)), "bfloat16")


def _ids(tokenizer: Any, text: str) -> list[int]:
    return list(tokenizer.encode(text, add_special_tokens=False))


# --- loading


def load_vllm(name: str | Path, options: ModelOptions) -> ServedCompletions:
    """`http://HOST/v1/NAME`: a vLLM server, sent token ids."""
    from rote.models.vllm import Vllm

    return _load(str(name), options, Vllm)


def load_server(name: str | Path, options: ModelOptions) -> ServedCompletions:
    """`http://HOST/v1/NAME`: a server that echoes prompts with their log-probs, sent texts."""
    from rote.models.echo import Echo

    return _load(str(name), options, Echo)


def _load(address: str, options: ModelOptions, dialect: Callable[[Any, int | None], Dialect]) -> ServedCompletions:
    if not re.match(r"https?://", address, re.IGNORECASE) or "/v1/" not in address:
        raise InputError(
            f"{argument('model')} names a served model as vllm:http://HOST:PORT/v1/NAME or "
            f"server:http://HOST:PORT/v1/NAME: the server's address up to /v1, and then the model's name there."
        )
    base, model = address_of(address)
    values, secrets = {}, []
    if options.key is not None:
        secrets = [environment(options.key, "key")]
        values["Authorization"] = f"Bearer {secrets[0]}"
    server = Server(
        base=base, headers=Headers(values, secrets), concurrency=options.concurrency, timeout=options.timeout,
        largest=LARGEST,
    )  # fmt: skip
    tokenizer, chosen = _tokenizer(options.tokenizer or model, options.tokenizer is not None)
    from rote.models.tokenizer import resolve_bos, warn_of_chat

    bos_id = resolve_bos(tokenizer, options.bos, chosen)
    warnings = warn_of_chat(tokenizer, bos_id, model)
    return ServedCompletions(server, dialect(tokenizer, bos_id), model, tokenizer, bos_id, options, chosen, warnings)


def _tokenizer(name: str, named: bool) -> tuple[Any, str]:
    from rote.models.tokenizer import load_tokenizer

    try:
        return load_tokenizer(name, download=True), name
    except ModelError as error:
        if named:
            raise
        raise ModelError(
            f"a server does not give its tokenizer away, and {name!r} is none that can be read here ({error}) Name the "
            f"model's folder, .gguf file or hub id with {argument('tokenizer')}."
        ) from error
