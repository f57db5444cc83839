"""Chat models by name: served ones and their endpoints, and local ones behind the same type."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

from rote.corpus.chat import chat_prefix, template_of
from rote.errors import InputError, ModelError, RoteError, argument
from rote.models.base import GeneratingModel, ModelOptions, load
from rote.models.probed import Answer, ChatIdentity, ChatModel, Price, Question
from rote.options import Option, require_kind, require_number, require_whole, settle
from rote.scheme import Scheme

OURS = ("model", "messages", "n", "stream")
"""Of a request: what no `body` may change."""

FORM = "http://localhost:8000/v1/MODEL: the address of the server up to /v1, and then the model's name"
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
SEEDLESS = '{"seed": null}'
KEYS = re.compile(r"(api|access|secret|private|auth)[_-]?(key|token)|authorization|password|secret|credential", re.I)
SECRETIVE = re.compile(r"auth|key|token|secret|cookie|password|credential", re.IGNORECASE)


@dataclass(frozen=True)
class Endpoint:
    """How a served chat model is reached. Nothing here is secret: keys are in the environment.

    `key`: the name of the environment variable that holds the key; without it none is sent. `header`: more of them;
    $NAME in a value stands for an environment variable. `price`: US dollars for a million prompt tokens and a million
    answer tokens; "0,0" says that it is free. `timeout`: seconds for a whole reply. `retries`: how often a question is
    sent again. `body`: a JSON object, added to every request; null leaves a parameter out.
    """

    key: Annotated[str | None, Option("Environment variable that holds the key, by its NAME.")] = None
    header: Annotated[Sequence[str], Option("'Name: value' of a header; $NAME: from the environment.")] = ()
    price: Annotated[
        str | Price | None, Option("US$ per million tokens of prompts and answers, as in 2.5,10; free: 0,0.")
    ] = None
    concurrency: Annotated[int, Option("Questions on their way at once.")] = 8
    timeout: Annotated[float, Option("Seconds that a reply may take.")] = 120.0
    retries: Annotated[int, Option("How often a question is sent again.")] = 6
    body: Annotated[
        str | Mapping[str, Any] | None, Option("JSON object added to every request; null leaves a parameter out.")
    ] = None

    def __post_init__(self) -> None:
        if self.key is not None and (not isinstance(self.key, str) or not VARIABLE.fullmatch(self.key)):
            raise InputError(_NO_NAME)
        if isinstance(self.header, str):
            raise InputError(f"{argument('header')} must be a tuple of headers, not one text.")
        settle(self, "header", tuple(self.header))
        for each in self.header:
            _split(each)
        settle(self, "price", _price(self.price))
        require_whole("concurrency", self.concurrency, most=1024)
        if not 0 < require_number("timeout", self.timeout) < math.inf:
            raise InputError(f"{argument('timeout')} must be a number of seconds above 0, not {self.timeout}.")
        require_whole("retries", self.retries, least=0, most=100)
        settle(self, "body", _body(self.body))


_NO_NAME = (
    f"{argument('key')} must be the name of an environment variable that is set, as in "
    f"{argument('key', 'OPENAI_API_KEY')}, without a $. What was given is none, and is not shown here, since it may be "
    "a key itself: put that into a variable."
)


def _price(price: Any) -> Price | None:
    if isinstance(price, str):
        parts = price.split(",")
        try:
            price = Price(prompt=float(parts[0]), answer=float(parts[1])) if len(parts) == 2 else None
        except ValueError:
            price = None
        if price is None:
            raise InputError(f"{argument('price')} must be two numbers with a comma between, as in 2.5,10.")
    if price is not None:
        require_kind("price", price, Price, "a rote.Price or two numbers, as in '2.5,10'")
        if not all(0 <= require_number("price", each) < math.inf for each in (price.prompt, price.answer)):
            raise InputError(f"{argument('price')} must be two numbers of at least 0.")
    return price  # type: ignore[no-any-return]


def _body(body: Any) -> dict[str, Any]:
    if isinstance(body, str):
        try:
            body = json.loads(body)
        except ValueError as error:
            raise InputError(f"{argument('body')} is no JSON object: {error}.") from error
    if not isinstance(body, Mapping | None):
        raise InputError(f"{argument('body')} must be a JSON object, as in {argument('body', SEEDLESS)}.")
    given = dict(body or {})
    if any(KEYS.search(str(name)) for name in given):
        raise InputError(
            f"{argument('body')} has a field that is called like a key, and bodies are kept and shown: send a key with "
            f"{argument('key')} or {argument('header')}."
        )
    for name in OURS:
        if given.get(name) is not None:
            raise InputError(f"{argument('body')} cannot change {name!r}, which every question has of its own.")
    return given


def _split(header: Any) -> tuple[str, str]:
    require_kind("header", header, str, "a text as in 'Name: value'")
    name, colon, value = (part.strip() for part in header.partition(":"))
    if not colon or not value or not re.fullmatch(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", name):
        raise InputError(
            f"{argument('header')} must be 'Name: value'; one that was given is not, and is not shown here."
        )
    if SECRETIVE.search(name) and "$" not in value:
        raise InputError(
            f"{argument('header')} {name!r} has its value written out, and that may be a key. Put it into an "
            f"environment variable: {argument('header', f'{name}: $NAME')}."
        )
    return name, value


def environment(name: str, what: str) -> str:
    """The value of a variable. A name that may be a key itself is not repeated."""
    value = os.environ.get(name, "").strip()
    shown = name if re.fullmatch(r"(?=.*_|.{1,15}$)[A-Z][A-Z0-9_]{0,39}", name) else None
    if not value:
        raise InputError(
            f"{argument(what)} names the environment variable {shown}, which is not set: export {shown}=..."
            if shown
            else _NO_NAME
        )
    if not value.isascii() or not value.isprintable():
        raise InputError(
            f"the environment variable {shown or 'that was named'} holds what no header can: line breaks or characters "
            "beyond ASCII. Set it to the key alone."
        )
    return value


@dataclass(frozen=True, kw_only=True)
class _File:
    """What a .toml file of an endpoint may say."""

    url: str
    name: str | None = None
    label: str | None = None
    key: str | None = None
    headers: dict[str, str] | None = None
    price: str | list[float] | None = None
    body: str | dict[str, Any] | None = None
    concurrency: int | None = None
    timeout: float | None = None
    retries: int | None = None


def load_chat(name: str | Path, endpoint: Endpoint = Endpoint(), options: ModelOptions = ModelOptions()) -> ChatModel:
    """A chat model: served at "http://HOST/v1/MODEL", described by a .toml file, or local, as `rote.load` takes it.

    What a .toml file says of its model counts for that, whatever `endpoint` says. "bundled" is the chat model that
    comes with Rote.
    """
    require_kind("model", name, str | Path, "the address, the name or the path of a chat model")  # type: ignore[arg-type]
    require_kind("endpoint", endpoint, Endpoint, "a rote.Endpoint")
    require_kind("options", options, ModelOptions, "a rote.ModelOptions")
    if re.match(r"https?://", str(name), re.IGNORECASE):
        base, model = address_of(str(name))
        return _served(base, model, endpoint, options.label)
    if str(name).endswith(".toml"):
        return _described(Path(name), endpoint, options)
    own = "bundled-chat" if str(name) == "bundled" else name
    return LocalChat(load(own, replace(options, bos="never")))  # type: ignore[arg-type]  # the template has it


def address_of(url: str) -> tuple[str, str]:
    """The base URL, and the model's name: what stands behind the last /v1/."""
    base, slash, model = url.rpartition("/v1/")
    model = model.rstrip("/")  # of a folder, as some servers name their models: .../v1//path/of/it
    if not slash or not model or model.endswith("chat/completions"):
        raise InputError(
            f"{_without_secrets(url)!r} does not say where the address ends and the model's name begins: write {FORM}; "
            "or a .toml file with url and name."
        )
    if "?" in model or "#" in model:
        raise InputError(
            f"the address {_without_secrets(url)!r} must have no ? or # in it, since addresses are kept and shown: "
            f"send a key with {argument('key')} or {argument('header')}."
        )
    return _checked(f"{base}/v1"), model


def _checked(base: str) -> str:
    from httpx2 import URL, InvalidURL

    base = base.rstrip("/")
    try:
        parts, host = urlsplit(base), URL(base).host
        wrong = not re.fullmatch(r"[\w.:-]+", host) or parts.scheme not in ("http", "https") or parts.port == 0
    except (ValueError, InvalidURL):
        wrong, parts = True, urlsplit("")
    if wrong:
        raise InputError(f"{_without_secrets(base)!r} is no address of a server: write {FORM}.")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise InputError(
            f"the address {_without_secrets(base)!r} must have no name, password, ? or # in it, since addresses are "
            f"kept and shown: send a key with {argument('key')} or {argument('header')}."
        )
    return base


def _without_secrets(url: str) -> str:
    return re.sub(r"[?#].*", "", re.sub(r"//[^/@]*@", "//", url))


def _described(path: Path, endpoint: Endpoint, options: ModelOptions) -> ChatModel:
    import tomllib

    import msgspec

    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}.") from error
    except ValueError as error:
        raise InputError(f"{path} is no TOML file: {error}.") from error
    known = [field.name for field in fields(_File)]
    if unknown := next((name for name in content if name not in known), None):
        raise InputError(f"{path}: {unknown!r} is nothing that an endpoint has; it has {', '.join(known)}.")
    try:
        said = msgspec.convert(content, _File)
    except msgspec.ValidationError as error:
        raise InputError(f"{path}: {str(error).rstrip('.')}. It needs at least url and name.") from error
    price = ",".join(map(str, said.price)) if isinstance(said.price, list) else said.price
    headers = None if said.headers is None else tuple(f"{name}: {value}" for name, value in said.headers.items())
    changes: dict[str, Any] = {
        "key": said.key, "header": headers, "price": price, "body": said.body, "concurrency": said.concurrency,
        "timeout": said.timeout, "retries": said.retries,
    }  # fmt: skip
    try:
        own = replace(endpoint, **{name: value for name, value in changes.items() if value is not None})
        base, model = (_checked(said.url), said.name) if said.name else address_of(said.url)
        return _served(base, model, own, said.label or options.label)
    except RoteError as error:
        raise InputError(f"{path}: {error}") from None


def _served(base: str, model: str, endpoint: Endpoint, label: str | None) -> ChatModel:
    from rote.models.http import Server
    from rote.models.replies import Headers
    from rote.models.served import ServedChat

    values, secrets = {}, []
    if endpoint.key is not None:
        secrets = [environment(endpoint.key, "key")]
        values["Authorization"] = f"Bearer {secrets[0]}"
    for name, value in map(_split, endpoint.header):
        named = re.findall(rf"\$\{{?({VARIABLE.pattern})\}}?", value)
        found = {each: environment(each, "header") for each in named}
        secrets += found.values()
        values[name] = re.sub(rf"\$\{{?({VARIABLE.pattern})\}}?", lambda match: found[match[1]], value)  # noqa: B023
    assert endpoint.price is None or isinstance(endpoint.price, Price)
    assert isinstance(endpoint.body, dict)
    server = Server(
        base=base, headers=Headers(values, secrets), concurrency=endpoint.concurrency, timeout=endpoint.timeout,
        retries=endpoint.retries,
    )  # fmt: skip
    free = endpoint.price is not None and endpoint.price.prompt == endpoint.price.answer == 0
    return ServedChat(
        server, model, body=endpoint.body, price=endpoint.price, paid=not free and not _near(base), label=label,
        key=endpoint.key,
    )  # fmt: skip


def _near(base: str) -> bool:
    """Whether a server is on this machine or in its own network, where nobody sends bills."""
    host = urlsplit(base).hostname or ""
    try:
        address = ip_address(host)
        return address.is_loopback or address.is_private or address.is_link_local
    except ValueError:
        return "." not in host or host.endswith((".localhost", ".local", ".internal", ".lan"))


class LocalChat:
    """A `ChatModel` around a model that runs here, asked in its own chat template, one question after the other."""

    paid = False
    price = Price(prompt=0.0, answer=0.0)

    def __init__(self, model: GeneratingModel) -> None:
        self._model = model
        if not getattr(model.tokenizer, "chat_template", None):
            raise ModelError(
                f"{model.identity().name} has no chat template, so that it cannot be asked anything. Use an "
                "instruction-tuned model."
            )
        self._template = template_of(model.tokenizer).sha256
        own = getattr(model.tokenizer, "eos_token_id", None)
        self._ends = model.eos_ids | (frozenset() if own is None else {own})

    def __repr__(self) -> str:
        return f"<chat with {self._model!r}>"

    def identity(self) -> ChatIdentity:
        own = self._model.identity()
        return ChatIdentity(name=own.name, label=own.label, body={}, headers=[], model=own, template=self._template)

    def answers(
        self, questions: Sequence[Question], *, admit: Callable[[int], bool] | None = None
    ) -> Iterator[tuple[int, Answer]]:
        for place, question in enumerate(questions):
            if admit is not None and not admit(place):
                return
            yield place, self._answer(question)

    def _answer(self, question: Question) -> Answer:
        tokenizer, most = self._model.tokenizer, self._model.context_length
        try:
            prompt = chat_prefix([{"role": "user", "content": question.prompt}], tokenizer, None, "the question")
        except InputError as error:  # a control token in a text, or a template that does not take it
            return Answer(text="", error=str(error))
        length = question.tokens if most is None else min(question.tokens, most - len(prompt))
        if length < 1:
            return Answer(text="", error=f"the prompt has {len(prompt):,} tokens, and the model takes {most:,}.")
        scheme = Scheme(
            temperature=question.temperature, top_k=None, top_p=question.top_p if question.temperature else None
        )
        (output,) = self._model.generate(prompt, scheme, length=length, samples=1, seed=question.seed)
        end = next((i for i, token in enumerate(output) if token in self._ends), None)
        return Answer(
            text=str(tokenizer.decode(output[:end], skip_special_tokens=True)),
            ended="length" if end is None else "stop",
            prompt_tokens=len(prompt),
            answer_tokens=len(output) if end is None else end + 1,
        )
