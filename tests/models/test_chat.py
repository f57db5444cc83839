"""Chat models: how they are named, what is sent, what is read out of replies, and what is told where it goes wrong."""

from __future__ import annotations

import json
import shutil
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import rote
from rote import Endpoint, InputError, ModelError, Price, load_chat
from rote.models.base import BUNDLED
from rote.models.chat import LocalChat
from rote.models.http import Server
from rote.models.huggingface import HuggingFaceModel
from rote.models.probed import Answer, ChatModel, Question
from tests import tiny
from tests.chatserver import ChatServer, Instead, Misbehave, error, failing, reply

KEY = "sk-test-0123456789/abc+DEF="
TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}{{ eos_token }}{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}"
)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Server, "wait", lambda self, tries: 0.005)


def asked(*prompts: str, tokens: int = 8) -> list[Question]:
    return [Question(prompt=prompt, tokens=tokens) for prompt in prompts]


def answers(server: ChatServer, *prompts: str, **endpoint: Any) -> list[Answer]:
    model = load_chat(server.model, Endpoint(**endpoint))
    found = dict(model.answers(asked(*prompts)))
    return [found[place] for place in range(len(prompts))]


def first(misbehave: Misbehave) -> Answer:
    with ChatServer(misbehave=misbehave) as server:
        (found,) = answers(server, "Hello")
    return found


def refused(misbehave: Misbehave, *words: str, requests: int = 1, name: str = "", **endpoint: Any) -> str:
    """That nothing can be asked, and why."""
    with ChatServer(misbehave=misbehave) as server:
        model = load_chat(f"{server.url}/{name or 'tiny-chat'}", Endpoint(**endpoint))
        with pytest.raises(ModelError) as told:
            list(model.answers(asked(*map(str, range(20)))))
    assert len(server.requests) == requests
    for word in (server.url, *words):
        assert word in str(told.value)
    return str(told.value)


# --- names and endpoints


@pytest.mark.parametrize(
    ("name", "base", "model"),
    [
        ("http://localhost:8000/v1/tiny", "http://localhost:8000/v1", "tiny"),
        ("https://api.example.com/v1/org/model-7b:free", "https://api.example.com/v1", "org/model-7b:free"),
        ("http://10.0.0.7/a/v1/b/v1/model/", "http://10.0.0.7/a/v1/b/v1", "model"),
        ("HTTP://[::1]:80/v1/m", "HTTP://[::1]:80/v1", "m"),
        ("http://localhost/v1//models/chat", "http://localhost/v1", "/models/chat"),
    ],
)
def test_an_address_ends_with_the_name_of_the_model(name: str, base: str, model: str) -> None:
    own = load_chat(name).identity()
    assert (own.url, own.name) == (base, model)


@pytest.mark.parametrize(
    "name",
    ["http://localhost:8000", "http://h/v1", "http://h/v1/", "http://h/v1/chat/completions", "http:///v1/m",
     "http://h:99999/v1/m", "http://[::1/v1/m", "http://a b/v1/m", "https:///v1/m"],
)  # fmt: skip
def test_an_address_without_one_is_refused_with_the_form(name: str) -> None:
    with pytest.raises(InputError, match="http://localhost:8000/v1/MODEL"):
        load_chat(name)


@pytest.mark.parametrize("name", ["http://me:hunter2@h/v1/m", "http://hunter2@h/v1/m", "http://h/x?key=hunter2/v1/m"])
def test_an_address_has_no_secrets(name: str) -> None:
    with pytest.raises(InputError, match="must have no name, password") as told:
        load_chat(name)
    assert "hunter2" not in str(told.value)


@pytest.mark.parametrize(
    ("host", "paid"),
    [("localhost", False), ("127.0.0.1", False), ("192.168.1.7", False), ("10.1.2.3", False), ("gpu-box", False),
     ("box.local", False), ("[::1]", False), ("api.example.com", True), ("8.8.8.8", True)],
)  # fmt: skip
def test_who_may_send_a_bill(host: str, paid: bool) -> None:
    assert load_chat(f"http://{host}/v1/m").paid is paid
    assert load_chat(f"http://{host}/v1/m", Endpoint(price="0,0")).paid is False
    assert load_chat(f"http://{host}/v1/m", Endpoint(price="0,1")).paid is paid


def test_prices() -> None:
    assert Endpoint(price="2.5,10").price == Price(prompt=2.5, answer=10)
    assert load_chat("http://h/v1/m", Endpoint(price=Price(prompt=1, answer=2))).price == Price(prompt=1, answer=2)
    assert load_chat("http://h/v1/m").price is None
    for wrong in ("1", "1,2,3", "a,b", "-1,2", "nan,1", "inf,1", "", 3):
        with pytest.raises(InputError, match="price"):
            Endpoint(price=wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "options",
    [{"concurrency": 0}, {"concurrency": 2.5}, {"timeout": 0}, {"timeout": float("inf")}, {"timeout": "x"},
     {"retries": -1}, {"body": "[1]"}, {"body": "{"}, {"body": 3}, {"body": {"messages": []}}, {"body": '{"n": 2}'},
     {"body": {"stream": True}}, {"body": {"model": "x"}}, {"header": "A: b"}, {"header": ["A"]},
     {"header": ["A b: c"]}, {"header": ["A: "]}, {"header": [3]}],
)  # fmt: skip
def test_options_that_make_no_sense_are_refused_by_name(options: Mapping[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(options))):
        Endpoint(**options)


def test_a_key_in_the_place_of_its_name_is_refused_and_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    for key in (KEY, "hf_abcdefghijklmnopqrstuvwxyz", "AKIAIOSFODNN7EXAMPLE", "gsk_0aB1cD2eF3", "$NAME", ""):
        monkeypatch.delenv(key, raising=False)
        with pytest.raises(InputError, match="name of an environment variable") as told:
            load_chat("http://h/v1/m", Endpoint(key=key))
        assert not key or key == "$NAME" or key not in str(told.value)
    with pytest.raises(InputError, match="variable MY_KEY, which is not set: export MY_KEY="):
        load_chat("http://h/v1/m", Endpoint(key="MY_KEY"))
    monkeypatch.setenv("MY_KEY", "sk-two\nlines")
    with pytest.raises(InputError, match="MY_KEY holds what no header can") as told:
        load_chat("http://h/v1/m", Endpoint(key="MY_KEY"))
    assert "sk-two" not in str(told.value)


def test_secret_headers_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for header in (f"Authorization: {KEY}", f"x-api-key: {KEY}", f"Cookie: {KEY}", f"{KEY}", f"a b: {KEY}"):
        with pytest.raises(InputError, match="header") as told:
            Endpoint(header=[header])
        assert KEY not in str(told.value)
    monkeypatch.setenv("MY_KEY", KEY)
    with ChatServer() as server:
        answers(server, "Hello", header=["x-api-key: Token ${MY_KEY}", "X-Title: Rote's", "X-Two: $MY_KEY/$MY_KEY"])
    assert server.headers[0]["x-api-key"] == f"Token {KEY}"
    assert server.headers[0]["x-two"] == f"{KEY}/{KEY}"
    assert server.headers[0]["x-title"] == "Rote's"
    assert "authorization" not in server.headers[0]
    with pytest.raises(InputError, match="variable NOT_SET, which is not set"):
        load_chat("http://h/v1/m", Endpoint(header=["x-api-key: $NOT_SET"]))


# --- files


def described(tmp_path: Path, content: str, **endpoint: Any) -> ChatModel:
    path = tmp_path / "endpoint.toml"
    path.write_text(content)
    return load_chat(path, Endpoint(**endpoint))


def test_an_endpoint_can_be_written_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", KEY)
    with ChatServer(key=KEY) as server:
        server.models = ["org/chat"]
        model = described(
            tmp_path,
            f'url = "{server.url}"\nname = "org/chat"\nlabel = "the chat"\nkey = "MY_KEY"\nprice = [1, 2.5]\n'
            'concurrency = 2\ntimeout = 9\nretries = 0\nheaders = { X-One = "1" }\n[body]\ntop_k = 3\n',
            key="ANOTHER",
            concurrency=5,
            header=["X-Two: 2"],
        )
        ((_, answer),) = model.answers(asked("Hello"))
    assert answer.text == "You said: Hello"
    assert model.identity().title == "the chat"
    assert model.price == Price(prompt=1, answer=2.5)
    assert model.identity().headers == ["X-One"]
    assert server.requests[0]["top_k"] == 3
    assert (model._server.concurrency, model._server.timeout, model._server.retries) == (2, 9, 0)  # type: ignore[attr-defined]


def test_a_file_without_a_name_has_it_in_its_address(tmp_path: Path) -> None:
    model = described(tmp_path, 'url = "http://h/v1/m"\nbody = \'{"seed": null}\'\nprice = "1,2"')
    assert (model.identity().url, model.identity().name) == ("http://h/v1", "m")
    assert model.identity().body["seed"] is None
    assert described(tmp_path, 'url = "http://h/other"\nname = "m"').identity().url == "http://h/other"


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("url = ", "is no TOML file"),
        ('name = "m"', "missing required field `url`"),
        ('url = "http://h/v1"\nname = 3', "at `$.name`"),
        ('url = "http://h/v1"\nname = "m"\nmodel = "m"', "'model' is nothing that an endpoint has; it has url, name"),
        ('url = "http://h/v1"', "write http://localhost:8000/v1/MODEL"),
        ('url = "h"\nname = "m"', "is no address of a server"),
        (f'url = "http://h/v1"\nname = "m"\nkey = "{KEY}"', "must be the name of an environment variable"),
        (f'url = "http://h/v1"\nname = "m"\nheaders = {{ x-api-key = "{KEY}" }}', "has its value written out"),
        ('url = "http://h/v1"\nname = "m"\nprice = [1]', "price must be two numbers"),
    ],
)
def test_files_that_make_no_sense_are_refused_by_name(tmp_path: Path, content: str, why: str) -> None:
    with pytest.raises(InputError) as told:
        described(tmp_path, content)
    assert str(told.value).startswith(str(tmp_path / "endpoint.toml"))
    assert why in str(told.value)
    assert KEY not in str(told.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nothing\.toml: No such file"):
        load_chat(tmp_path / "nothing.toml")


# --- what is sent


def test_everything_that_decides_an_answer_is_sent() -> None:
    question = Question(prompt="Grüße, 世界 🙂 {}", tokens=7, temperature=0.5, top_p=0.9, seed=4)
    with ChatServer() as server:
        model = load_chat(server.model)
        ((_, answer),) = model.answers([question])
    assert server.requests == [
        {
            "model": "tiny-chat", "messages": [{"role": "user", "content": "Grüße, 世界 🙂 {}"}], "max_tokens": 7,
            "temperature": 0.5, "top_p": 0.9, "seed": 4, "n": 1, "frequency_penalty": 0, "presence_penalty": 0,
            "stream": False,
        }
    ]  # fmt: skip
    assert answer == Answer(
        text="You said: Grüße, 世界 🙂 {}", ended="stop", prompt_tokens=5, answer_tokens=6, model="tiny-chat-2026"
    )


def test_parameters_can_be_added_and_left_out() -> None:
    with ChatServer() as server:
        answers(server, "Hello", body='{"seed": null, "n": null, "top_k": 5, "temperature": 0.25}')
    sent = server.requests[0]
    assert "seed" not in sent
    assert "n" not in sent
    assert (sent["top_k"], sent["temperature"]) == (5, 0.25)


def test_a_served_model_is_what_is_known_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", KEY)
    endpoint = Endpoint(key="MY_KEY", header=["X-B: $MY_KEY", "X-A: 1"], body={"seed": None})
    model = load_chat("http://h/v1/org/m", endpoint, rote.ModelOptions(label="mine"))
    own = model.identity()
    assert (own.name, own.title, own.url, own.headers) == ("org/m", "mine", "http://h/v1", ["X-A", "X-B"])
    assert own.body == {"n": 1, "frequency_penalty": 0, "presence_penalty": 0, "stream": False, "seed": None}
    assert (own.model, own.template) == (None, None)
    assert isinstance(model, ChatModel)
    assert KEY not in f"{own!r} {model!r} {endpoint!r} {vars(model)!r}"


# --- what is read out of replies


def choice(message: dict[str, Any], ended: str | None = "stop") -> Misbehave:
    return failing(99, Instead(body=reply("") | {"choices": [{"message": message, "finish_reason": ended}]}))


def test_replies_of_many_kinds() -> None:
    assert first(choice({"content": "Sí, señor. 你好"})).text == "Sí, señor. 你好"
    assert first(choice({"content": None, "tool_calls": [{"id": 1}]}, "tool_calls")).ended == "tool_calls"
    assert first(choice({"content": None, "tool_calls": [{"id": 1}]})).text == ""
    assert first(choice({})).text == ""
    assert first(choice({"content": [{"type": "text", "text": "in "}, {"type": "image"}, "parts"]})).text == "in parts"
    no = first(choice({"content": None, "refusal": "I cannot help with that."}))
    assert (no.text, no.refusal) == ("", "I cannot help with that.")
    apart = first(choice({"content": "Paris", "reasoning_content": "Hm.", "reasoning": "Hm."}, "length"))
    assert (apart.text, apart.ended) == ("Paris", "length")
    assert first(choice({"content": "x"}, None)).ended is None
    cut = first(choice({"content": ""}, "content_filter"))
    assert (cut.text, cut.ended, cut.error) == ("", "content_filter", None)


@pytest.mark.parametrize(
    "usage", [None, {}, [], {"prompt_tokens": "3", "completion_tokens": -1}, {"prompt_tokens": True}]
)
def test_tokens_that_were_not_counted(usage: Any) -> None:
    found = first(failing(1, Instead(body=reply("x", usage=usage))))
    assert (found.text, found.prompt_tokens, found.answer_tokens) == ("x", None, None)


@pytest.mark.parametrize(
    "body",
    [{"choices": []}, {"choices": None}, {}, [], "text", 3, {"choices": [None]}, {"choices": [{"text": "x"}]},
     {"choices": [{"message": {"content": "ha"}, "finish_reason": "error"}]}, {"error": {"message": "later"}},
     {"error": {"code": 503, "message": "busy"}}, {"error": "busy"}],
)  # fmt: skip
def test_replies_without_an_answer_are_asked_for_again(body: Any) -> None:
    found = first(failing(2, Instead(body=body)))
    assert (found.text, found.attempts) == ("You said: Hello", 3)


def test_an_error_may_come_as_a_success() -> None:
    refused(failing(99, Instead(body={"error": {"code": 401, "message": "no"}})), "does not let us in")


# --- what is wrong with all of them


def test_a_wrong_key_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", KEY)
    with ChatServer(key="another") as server, pytest.raises(ModelError) as told:
        answers(server, *map(str, range(30)), key="MY_KEY")
    assert len(server.requests) == 1
    assert "does not let us in (HTTP 401: Incorrect API key provided: Bearer ***)" in str(told.value)
    assert "Set the environment variable MY_KEY to a key that is valid there" in str(told.value)
    whole = "".join(traceback.format_exception(told.value))
    assert KEY not in whole
    assert server.headers[0]["authorization"] == f"Bearer {KEY}"


def test_a_missing_key_is_told_at_once() -> None:
    refused(failing(99, error(403, "who are you?")), "who are you?", "key='OPENAI_API_KEY'")


def test_a_key_that_is_taken_back_later_is_told_after_what_is_on_its_way() -> None:
    with ChatServer(misbehave=lambda number, body: error(401, "expired") if number == 20 else None) as server:
        model = load_chat(server.model)
        with pytest.raises(ModelError, match="expired"):
            list(model.answers(asked(*map(str, range(100)))))
        assert len(server.requests) < 40


def test_a_wrong_name_is_told_with_the_right_ones() -> None:
    told = refused(lambda number, body: None, "does not know the model 'nonsense'", name="nonsense")
    assert "It has tiny-base, tiny-chat." in told


def test_a_wrong_name_where_none_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    nothing: list[Any] = [None, [], {"data": None}, {"data": [3]}, {"object": "list"}]
    for listed in nothing:
        monkeypatch.setattr(Server, "get", lambda self, path, listed=listed: listed)
        refused(failing(9, Instead(status=404, body=b"<html>nothing here</html>")), "Check the model's name")


@pytest.mark.parametrize(
    "instead",
    [error(402, "Payment required"), error(429, "You exceeded your current quota", code="insufficient_quota"),
     error(429, "x", type="insufficient_quota"), error(429, "Your credit balance is too low")],
)  # fmt: skip
def test_no_money_is_told_at_once(instead: Instead) -> None:
    refused(failing(99, instead), "wants money")


@pytest.mark.parametrize("status", [400, 422])
def test_a_parameter_that_is_not_taken_is_told_at_once(status: int) -> None:
    told = refused(failing(99, error(status, "Unsupported parameter: 'seed'")), "Unsupported parameter: 'seed'")
    assert """body='{"NAME": null}'""" in told


def test_a_question_that_is_refused_later_is_an_answer() -> None:
    with ChatServer(
        misbehave=lambda number, body: error(400, "bad") if "7" in str(body["messages"]) else None
    ) as server:
        found = answers(server, *map(str, range(9)))
    assert [one.error for one in found] == [None] * 7 + ["HTTP 400: bad", None]
    assert not found[7].again
    assert found[7].attempts == 1


@pytest.mark.parametrize(
    "instead",
    [error(400, "This model's maximum context length is 8 tokens", code="context_length_exceeded"),
     error(413, "Prompt too long")],
)  # fmt: skip
def test_a_question_that_is_too_long_is_an_answer_even_if_it_is_the_first(instead: Instead) -> None:
    with ChatServer(misbehave=failing(1, instead)) as server:
        found = answers(server, "a", "b")
    assert [bool(one.error) for one in found] == [True, False]
    assert not found[0].again


@pytest.mark.parametrize("status", [400, 403])
def test_a_question_that_a_policy_forbids_is_a_refusal(status: int) -> None:
    with ChatServer(misbehave=failing(1, error(status, "Flagged.", code="content_filter"))) as server:
        found = answers(server, "a", "b")
    assert (found[0].text, found[0].ended, found[0].refusal, found[0].error) == ("", "content_filter", "Flagged.", None)
    assert found[1].text == "You said: b"


def test_a_moved_server_is_told() -> None:
    refused(
        failing(9, Instead(status=301, headers={"Location": "https://x/v1"})), "redirects to https://x/v1", "has moved"
    )


def test_no_server_is_told() -> None:
    with ChatServer() as server:
        pass
    with pytest.raises(ModelError, match=r"cannot be reached: no connection.* Check that the server runs"):
        answers(server, "a", "b")


def test_what_is_no_such_server_is_told() -> None:
    page = Instead(body=b"<!doctype html><title>My site</title>")
    told = refused(failing(99, page), "an HTML page (My site)", "is the base URL of an OpenAI-compatible", requests=9)
    assert "HTTP 200" in told


def test_a_server_that_fails_at_everything_is_told() -> None:
    refused(failing(99, Instead(status=500, body=b"oops")), "fails at every question", "'tiny-chat'", requests=9)


# --- what is asked again


def test_what_fails_is_asked_once_more_at_the_end() -> None:
    tried: list[str] = []

    def misbehave(number: int, body: dict[str, Any]) -> Instead | None:
        prompt = body["messages"][0]["content"]
        tried.append(prompt)
        return error(500, "oops") if prompt == "3" and tried.count("3") <= 3 else None

    with ChatServer(misbehave=misbehave) as server:
        found = answers(server, *map(str, range(9)), retries=2)
    assert [one.text for one in found] == [f"You said: {number}" for number in range(9)]
    assert tried[-1] == "3"
    assert (found[3].attempts, found[3].lost) == (4, 3)


def test_what_fails_again_is_an_answer_that_is_not_for_good() -> None:
    with ChatServer(
        misbehave=lambda n, body: Instead(drop=0) if body["messages"][0]["content"] == "3" else None
    ) as server:
        found = answers(server, *map(str, range(9)), retries=1)
    assert [one.error is None for one in found] == [True] * 3 + [False] + [True] * 5
    assert found[3].again
    assert (found[3].attempts, found[3].lost) == (4, 4)
    assert "connection broke off" in str(found[3].error)


def test_a_server_that_has_a_bad_day(tmp_path: Path) -> None:
    """Of every ten requests, six go wrong, each in its own way; all questions are answered in the end."""
    bad = [
        error(429, "slow down"), Instead(status=429, headers={"Retry-After": "0.01"}), error(500, "oops"),
        Instead(body=reply("x"), drop=40), Instead(body=b"{nonsense"), Instead(body={"choices": []}),
    ]  # fmt: skip
    with ChatServer(misbehave=lambda number, body: bad[number % 10] if 0 < number % 10 < 6 else None) as server:
        found = answers(server, *map(str, range(60)), retries=20)
    assert [one.text for one in found] == [f"You said: {number}" for number in range(60)]
    assert sum(one.attempts for one in found) == len(server.requests)


# --- local ones


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tiny.save(tmp_path_factory.mktemp("chat") / "tiny-chat")
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"chat_template": TEMPLATE}))
    return folder


def test_a_local_model_answers_in_its_template(local: Path) -> None:
    chat = load_chat(local, options=rote.ModelOptions(device="cpu"))
    assert isinstance(chat, LocalChat)
    assert isinstance(chat, ChatModel)
    found = dict(chat.answers(asked("Hello there", "Who are you?", tokens=6)))
    model = rote.load(local, rote.ModelOptions(device="cpu"))
    tokenizer = model.tokenizer
    for place, prompt in enumerate(["Hello there", "Who are you?"]):
        ids = tokenizer.encode(f"<bos>user: {prompt}<eos>assistant:".replace("<bos>", tokenizer.bos_token).replace(
            "<eos>", tokenizer.eos_token), add_special_tokens=False)  # fmt: skip
        written = greedy(model, ids, 6)
        assert found[place] == Answer(
            text=tokenizer.decode(written), ended="length", prompt_tokens=len(ids), answer_tokens=6
        )
    assert (chat.paid, chat.price) == (False, Price(prompt=0, answer=0))


def greedy(model: Any, ids: list[int], length: int) -> list[int]:
    """The likeliest token, so many times: a loop that shares nothing with transformers' generate."""
    import torch

    written: list[int] = []
    for _ in range(length):
        hidden = model.hidden(torch.tensor([ids + written]))[0, -1:]
        written.append(int(model.head(hidden).argmax()))
    return written


def test_a_local_model_ends_where_its_turn_does(local: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chat = load_chat(local, options=rote.ModelOptions(device="cpu"))
    end = chat._model.tokenizer.eos_token_id  # type: ignore[attr-defined]
    monkeypatch.setattr(HuggingFaceModel, "generate", lambda *_, **__: iter([(300, 301, end, 302)]))
    ((_, found),) = chat.answers(asked("Hello"))
    assert found.text == chat._model.tokenizer.decode([300, 301])  # type: ignore[attr-defined]
    assert (found.ended, found.answer_tokens) == ("stop", 3)


def test_a_local_model_samples_by_the_seed(local: Path) -> None:
    chat = load_chat(local, options=rote.ModelOptions(device="cpu"))
    drawn = [Question(prompt="Hello", tokens=12, temperature=1.5, top_p=0.99, seed=seed) for seed in (1, 2, 1)]
    found = dict(chat.answers(drawn))
    assert found[0] == found[2]
    assert found[0].text != found[1].text


def test_a_local_model_is_known_by_its_weights_and_template(local: Path) -> None:
    own = load_chat(local, options=rote.ModelOptions(device="cpu", label="mine")).identity()
    assert own.model is not None
    assert own.model.fingerprint == rote.load(local).identity().fingerprint
    assert (own.title, own.url, own.body, own.headers) == ("mine", None, {}, [])
    assert own.template is not None
    assert len(own.template) == 64


def test_what_a_local_model_cannot_be_asked_is_an_answer(local: Path) -> None:
    chat = load_chat(local, options=rote.ModelOptions(device="cpu"))
    end = chat._model.tokenizer.eos_token  # type: ignore[attr-defined]
    found = dict(chat.answers(asked("word " * 500, f"a {end} b", "short", tokens=500)))
    assert "the model takes 128" in str(found[0].error)
    assert "control token" in str(found[1].error)
    assert found[2].error is None
    assert (found[2].prompt_tokens or 0) + (found[2].answer_tokens or 0) <= 128
    assert not found[0].again


def test_a_local_model_is_not_asked_more_than_is_admitted(local: Path) -> None:
    chat = load_chat(local, options=rote.ModelOptions(device="cpu"))
    assert [place for place, _ in chat.answers(asked(*"abcd", tokens=1), admit=lambda place: place < 2)] == [0, 1]


def test_a_model_without_a_template_is_told(tmp_path: Path) -> None:
    shutil.copytree(BUNDLED, tmp_path / "plain")
    with pytest.raises(ModelError, match=r"has no chat template.*instruction-tuned"):
        load_chat(tmp_path / "plain", options=rote.ModelOptions(device="cpu"))
    assert load_chat("bundled", options=rote.ModelOptions(device="cpu")).identity().name == "bundled-chat"


def test_what_is_no_name_is_refused() -> None:
    with pytest.raises(InputError, match="model must be"):
        load_chat(3)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="endpoint must be"):
        load_chat("http://h/v1/m", "key")  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["http://h/v1/x?api_key=sk-secret-123456", "http://h/v1/x#sk-secret-123456"])
def test_no_key_is_part_of_a_models_name(name: str) -> None:
    with pytest.raises(InputError, match="must have no") as told:
        load_chat(name)
    assert "sk-secret" not in str(told.value)


def test_no_key_is_in_a_body() -> None:
    with pytest.raises(InputError, match="called like a key") as told:
        rote.Endpoint(body='{"api_key": "sk-secret-123456"}')
    assert "sk-secret" not in str(told.value)
    assert rote.Endpoint(body={"max_tokens": None, "max_completion_tokens": 9}).body
