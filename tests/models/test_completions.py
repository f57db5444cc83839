"""Served models: the numbers of the model itself, and what is said where a server is not what it should be."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rote
from rote import GREEDY, Example, InputError, ModelError, ModelOptions, Scheme, SuffixScorer, Windows
from rote.models.base import BUNDLED, GeneratingModel, LogitModel
from rote.models.completions import fineness, seed_of
from rote.models.promptlists import Odd, read_echo, read_vllm
from rote.models.tokenizer import load_tokenizer
from tests.echoserver import EchoServer
from tests.vllmserver import Faults, VllmServer, options

SCHEMES = [
    Scheme(), Scheme(0.7), Scheme(1.3, 20), Scheme(top_k=40, top_p=0.9), Scheme(1.0, None),
    Scheme(top_k=None, min_p=0.1), GREEDY,
]  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def read_once() -> Iterator[None]:
    """Loading a tokenizer takes most of the time of loading a served model."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rote.models.tokenizer.load_tokenizer", cache(load_tokenizer))
        yield


def load(name: Any, given: ModelOptions | None = None) -> Any:
    return rote.load(name, given or ModelOptions())


@pytest.fixture(scope="module")
def tiny(tiny_folder: Path) -> Any:
    return load(tiny_folder, ModelOptions(device="cpu"))


@pytest.fixture(scope="module")
def vllm(bundled: Any) -> Iterator[tuple[VllmServer, Any]]:
    with VllmServer(bundled) as server:
        yield server, load(server.model, options())


@pytest.fixture(scope="module")
def echo(bundled: Any) -> Iterator[tuple[EchoServer, Any]]:
    with EchoServer(bundled) as server:
        yield server, load(server.model, options())


@pytest.fixture(scope="module")
def examples(bundled: Any, alice: str, gatsby: str) -> list[Example]:
    """Known by heart, and not at all; each is read again as the tokens that it has."""
    windows = Windows(prefix=40, suffix=24, stride=131, unit="characters")
    found = [*rote.windows(alice[3000:3700], bundled.tokenizer, windows)]
    found += [
        Example(f"g{e.id}", e.prefix, e.suffix) for e in rote.windows(gatsby[50_000:50_400], bundled.tokenizer, windows)
    ]
    encode, decode = bundled.tokenizer.encode, bundled.tokenizer.decode
    kept = [e for e in found if encode(decode([*e.prefix, *e.suffix])) == [*e.prefix, *e.suffix]]
    assert len(kept) >= 4
    return kept


def same_scores(served: Any, bundled: Any, examples: list[Example]) -> None:
    expected = iter(rote.verbatim(bundled, examples, SCHEMES))
    finite = 0
    for scores in served.score_suffixes(examples, SCHEMES):
        for row, bounded in zip(scores.log_probs, scores.bounded, strict=True):
            own = next(expected)
            sure = ~np.asarray(bounded)
            np.testing.assert_allclose(np.asarray(row)[sure], own.token_log_probs[sure], atol=1e-4, rtol=0)
            finite += int(np.isfinite(own.token_log_probs[sure]).sum())
    assert finite > 100


def test_scores_are_those_of_the_model_itself(vllm: Any, bundled: Any, examples: list[Example]) -> None:
    _, served = vllm
    assert isinstance(served, SuffixScorer)
    assert isinstance(served, GeneratingModel)
    assert not isinstance(served, LogitModel)
    same_scores(served, bundled, examples)


def test_texts_and_echoes_say_the_same(echo: Any, bundled: Any, examples: list[Example]) -> None:
    same_scores(echo[1], bundled, examples)


def test_what_it_is_says_all_that_is_known(vllm: Any, bundled: Any) -> None:
    server, served = vllm
    own, here = served.identity(), bundled.identity()
    assert own.name == f"vllm:{server.url}/bundled"
    assert (own.fingerprint, own.parameters, own.hashed) == (None, None, None)
    assert (own.tokenizer, own.bos_token, own.dtype) == (here.tokenizer, here.bos_token, "float32")
    assert (own.served.url, own.served.version, own.served.listed) == (server.url, "vLLM 0.15.0", 64)
    assert served.context_length == server.max_model_len - 2
    assert "weights cannot be checked" in repr(served)


def test_everything_that_a_server_could_decide_is_sent(vllm: Any, examples: list[Example]) -> None:
    server, served = vllm
    list(served.score_suffixes(examples[:1], [Scheme()]))
    body = server.bodies[-1]
    assert body["prompt"] == [served.bos_id, *examples[0].prefix, *examples[0].suffix]
    sent = served.identity().served.sent
    assert {name: body[name] for name in sent} == sent
    assert set(body) == {*sent, "prompt", "prompt_logprobs", "model"}
    for name in ("temperature", "top_p", "top_k", "min_p", "repetition_penalty", "presence_penalty", "seed"):
        assert name in sent


def test_it_generates_with_the_servers_sampler(vllm: Any, echo: Any, examples: list[Example]) -> None:
    example = examples[0]
    for server, served in (vllm, echo):
        prompt, scheme = [served.bos_id, *example.prefix], Scheme(0.8, 5)
        outputs = list(served.generate(prompt, scheme, length=4, samples=6, seed=3))
        assert len(outputs) == 6
        assert all(1 <= len(output) <= 4 for output in outputs)
        assert list(served.generate(prompt, scheme, length=4, samples=6, seed=3)) == outputs
        body = server.bodies[-1]
        assert (body["temperature"], body["top_k"], body["top_p"], body["min_p"]) == (0.8, 5, 1.0, 0.0)
        (greedy,) = served.generate(prompt, GREEDY, length=len(example.suffix), samples=1, seed=0)
        scores = next(served.score_suffixes([example], [GREEDY]))
        assert (greedy == example.suffix) == bool(np.asarray(scores.argmax).all())


@pytest.mark.parametrize(
    ("source", "scheme"),
    [("vllm", Scheme(top_p=0.9, min_p=0.1)), ("echo", Scheme(0.7, None, 0.9)), ("echo", Scheme(0.7, 5, None, 0.1))],
)
def test_a_sampler_with_another_order_is_refused(source: str, scheme: Scheme, request: Any) -> None:
    _, served = request.getfixturevalue(source)
    with pytest.raises(InputError, match="cannot generate under"):
        list(served.generate([0, 5], scheme, length=2, samples=1, seed=0))


def test_half_precision_shows_in_the_steps_between_log_probs(bundled: Any) -> None:
    with VllmServer(bundled, faults=Faults(half=True)) as server:
        assert load(server.model, options()).identity().dtype == "bfloat16"


def test_numbers_that_move_have_a_tolerance_that_covers_it(tiny: Any) -> None:
    with VllmServer(tiny, faults=Faults(noise=0.01)) as server:
        served = load(server.model, options())
    assert (served.identity().dtype, served.logit_tolerance) == ("float16", 0.1)
    values = np.log(np.random.default_rng(0).dirichlet(np.ones(64), 20))
    values.sort(axis=1)
    assert [fineness(values[:, ::-1], apart) for apart in (0.0, 0.01, 0.2)] == ["float32", "float16", "bfloat16"]


def refused(faults: Faults | None = None, what: str = "", *, model: Any, given: Any = None, **server: Any) -> None:
    with VllmServer(model, faults=faults, **server) as started, pytest.raises(ModelError, match=what):
        load(started.model, given or options())


@pytest.mark.parametrize(
    ("faults", "what"),
    [
        (Faults(processed=True), "--logprobs-mode raw_logprobs"),
        (Faults(ignores=True), "lists no prompt_logprobs, which vLLM servers do.*server:http"),
        (Faults(truncates=5), r"lists log-probs of 5 tokens, and the prompt has \d+: it cuts prompts short"),
        (Faults(nan=True), "lists nan as a log-prob"),
        (Faults(drops=99), "the connection broke off"),
        (Faults(capped=5), r"lists at most 6 log-probs at a position, and 64 were asked for.*listed"),
        (Faults(raw=40.0), "lists numbers that are no log-probs.*--logprobs-mode raw_logprobs"),
    ],
)
def test_servers_that_cannot_be_used_are_refused_at_once(faults: Faults, what: str, tiny: Any) -> None:
    refused(faults, what, model=tiny)


def test_how_many_log_probs_there_may_be_is_said_with_the_servers_option(tiny: Any) -> None:
    refused(
        None, r"does not list 64 log-probs.*max allowed: 20.*--max-logprobs 64.*listed", model=tiny, max_logprobs=20
    )
    with VllmServer(tiny, max_logprobs=20) as server:
        served = load(server.model, options(listed=20))
        with pytest.raises(InputError, match="top_k=40"):
            served.refuse([], [Scheme()])


def test_names_keys_and_addresses(tiny: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with VllmServer(tiny, key="sesame-open-1") as server:
        with pytest.raises(ModelError, match="does not let us in"):
            load(server.model, options())
        monkeypatch.setenv("SERVER_KEY", "sesame-open-1")
        served = load(server.model, options(key="SERVER_KEY"))
        assert "sesame" not in repr(served) + json.dumps(str(served.identity()))
        with pytest.raises(ModelError, match=r"does not know the model 'other'. It has bundled"):
            load(f"vllm:{server.url}/other", options())
        with pytest.raises(ModelError, match=r"'nowhere/at-all' is none that can be read here.*tokenizer"):
            load(f"vllm:{server.url}/nowhere/at-all")
    with pytest.raises(ModelError, match=r"cannot be reached"):
        load("vllm:http://127.0.0.1:9/v1/bundled", options())
    with pytest.raises(InputError, match="vllm:http://HOST:PORT/v1/NAME"):
        load("vllm:localhost/bundled", options())


def test_a_server_of_the_other_kind_is_told(tiny: Any) -> None:
    """As llama-cpp-python's fails at token ids."""
    refused = pytest.raises(ModelError, match=r"valid string.* is asked as server:http")
    with EchoServer(tiny) as server, refused as said:
        rote.load(server.model.replace("server:", "vllm:"), options())
    assert "go on" not in str(said.value), "nothing was begun"


@pytest.mark.parametrize("idle", [{"dtype": "float32"}, {"device": "cpu"}, {"threads": 1}, {"fingerprint": "whole"}])
def test_options_that_change_nothing_are_refused(idle: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=f"{next(iter(idle))} changes nothing here"):
        load("vllm:http://127.0.0.1:9/v1/bundled", ModelOptions(**idle))
    with pytest.raises(InputError, match="listed changes nothing here"):
        load(BUNDLED, ModelOptions(listed=30))


def test_what_fails_for_a_while_is_asked_for_again(tiny: Any, examples: list[Example]) -> None:
    faults = Faults(drops=1, busy=2, broken=1)
    with VllmServer(tiny) as server:
        served = load(server.model, options())
        clean = [scores.log_probs for scores in served.score_suffixes(examples, [Scheme()])]
        served._server = rote.models.http.Server(base=served._server.base, backoff=0.01, largest=1 << 28)
        server.faults = faults
        again = [scores.log_probs for scores in served.score_suffixes(examples, [Scheme()])]
    assert (faults.drops, faults.busy, faults.broken) == (0, 0, 0)
    np.testing.assert_array_equal(np.concatenate(clean, 1), np.concatenate(again, 1))


def test_a_prompt_that_is_too_long_is_named(tiny: Any) -> None:
    with VllmServer(tiny, max_model_len=60) as server:
        served = load(server.model, options())
        assert served.context_length == 58
        with pytest.raises(InputError, match="context of 58 positions: 'x'"):
            rote.verbatim(served, [Example("x", (5,) * 40, (6,) * 30)])
        with pytest.raises(ModelError, match=r"does not take example 'x'.*maximum context length is 60"):
            list(served.score_suffixes([Example("x", (5,) * 40, (6,) * 30)], [Scheme()]))


# --- servers that echo


def test_bos_is_what_the_server_puts_there(tiny: Any) -> None:
    with EchoServer(tiny) as server, pytest.raises(ModelError, match=r"puts a BOS before every text.*bos='auto'"):
        load(server.model, options(bos="never"))
    with EchoServer(tiny, bos=False) as server:
        with pytest.raises(ModelError, match=r"puts no BOS before a text.*bos='never'"):
            load(server.model, options())
        assert load(server.model, options(bos="never")).bos_id is None


def test_lists_at_the_places_of_other_tokens_are_refused(tiny: Any) -> None:
    with EchoServer(tiny, shifted=True) as server, pytest.raises(ModelError, match="at the places of other tokens"):
        load(server.model, options())
    with EchoServer(tiny, shown=False) as server, pytest.raises(ModelError, match="--logits_all true"):
        load(server.model, options())


def test_merged_entries_are_not_taken_for_whole_lists(bundled: Any, examples: list[Example]) -> None:
    with EchoServer(bundled, merged=3) as server:
        served = load(server.model, options())
        scores = next(served.score_suffixes(examples[:1], [Scheme(), Scheme(1.0, None)]))
    assert not np.asarray(scores.bounded)[1].any()
    assert np.asarray(scores.bounded)[0].any()


def test_tokens_that_no_text_stands_for_are_refused_before_anything_is_asked(
    echo: Any, examples: list[Example]
) -> None:
    server, served = echo
    first = next(i for i in range(300, 4000) for j in range(300, 320) if served.tokenizer.encode(
        served.tokenizer.decode([i, j]), add_special_tokens=False) != [i, j])  # fmt: skip
    second = next(j for j in range(300, 320) if served.tokenizer.encode(
        served.tokenizer.decode([first, j]), add_special_tokens=False) != [first, j])  # fmt: skip
    asked = len(server.bodies)
    with pytest.raises(InputError, match=r"1 of 5 examples \(the first: 'odd'\).*vllm:http.*unit='characters'"):
        rote.verbatim(served, [*examples[:4], Example("odd", (first,), (second,))])
    assert len(server.bodies) == asked


@pytest.mark.parametrize("kind", [EchoServer, VllmServer])
def test_another_tokenizer_is_refused(kind: type[VllmServer], tiny: Any, tmp_path: Path) -> None:
    folder = tmp_path / "other"
    folder.mkdir()
    for path in BUNDLED.glob("*.json"):
        (folder / path.name).write_bytes(path.read_bytes())
    settings = json.loads((folder / "tokenizer.json").read_text())
    settings["model"]["merges"] = settings["model"]["merges"][:1000]
    (folder / "tokenizer.json").write_text(json.dumps(settings))
    with kind(tiny) as server, pytest.raises(ModelError, match="another tokenizer"):
        load(server.model, ModelOptions(tokenizer=str(folder)))


def test_a_list_that_is_cut_short_is_refused(tiny: Any) -> None:
    with (
        EchoServer(tiny, faults=Faults(capped=5)) as server,
        pytest.raises(ModelError, match=r"lists at most 6 log-probs at a position, and 64 were asked for"),
    ):
        load(server.model, options())


def test_a_text_that_speaks_of_logits_all_is_scored(echo: Any, examples: list[Example]) -> None:
    _, served = echo
    ids = served.tokenizer.encode("It was started with logits_all there.", add_special_tokens=False)
    (scores,) = served.score_suffixes([Example("x", ids[:-2], ids[-2:])], [Scheme(1.0, None)])
    assert np.isfinite(scores.log_probs).all()


def test_a_prompt_that_is_read_as_other_tokens_is_not_gone_on_from(echo: Any, alice: str, tmp_path: Path) -> None:
    """Two line breaks that end a prefix are one token where a text goes on behind them, and another where it ends."""
    server, served = echo
    cut = rote.windows(alice[:30_000], served.tokenizer, Windows(prefix=12, suffix=8, stride=40))
    odd = [e for e in cut if served.unwritable([e]) and not served._dialect.unsendable([(*e.prefix, *e.suffix)])]
    assert odd, "every prefix of this text is read as it was cut: the test says nothing"
    asked = len(server.bodies)
    near = rote.Near(tolerance=1, method="sample", samples=8)
    with pytest.raises(InputError, match=rf"the prompt before '{odd[0].id}' \(1 of 2\) is read again as other tokens"):
        rote.near_verbatim(served, [cut[0], odd[0]], near=near)
    prompt = [served.bos_id, *odd[0].prefix]
    with pytest.raises(InputError, match="read again as other tokens"):
        list(served.generate(prompt, Scheme(), length=2, samples=1, seed=0))
    assert len(server.bodies) == asked


def test_a_server_that_writes_nothing_is_asked_again_and_not_believed(tiny: Any, bundled: Any) -> None:
    with EchoServer(tiny, silent=1) as server:
        load(server.model, options())
    with (
        EchoServer(bundled, silent=1, shifted=True) as server,
        pytest.raises(ModelError, match="places of other tokens"),
    ):
        load(server.model, options())
    with EchoServer(tiny, silent=99) as server, pytest.raises(ModelError, match="writes nothing after two"):
        load(server.model, options())


def test_what_vllm_would_sample_otherwise_is_refused(vllm: Any, tiny: Any) -> None:
    for scheme in (Scheme(0.005), Scheme(top_k=None, min_p=1e-6)):
        with pytest.raises(InputError, match="cannot generate under"):
            list(vllm[1].generate([0, 5], scheme, length=2, samples=1, seed=0))
    with VllmServer(tiny, faults=Faults(old=True)) as server:
        served = load(server.model, options())
        asked = len(server.bodies)
        with pytest.raises(InputError, match=r"gives no token_ids of what it generates: that needs vLLM 0\.10\.2"):
            list(served.generate([0, 5], Scheme(), length=2, samples=1, seed=0))
        assert len(server.bodies) == asked


@pytest.mark.parametrize(
    "content", [[], "text", None, {"choices": "none"}, {"choices": [[]]}, {"choices": [{"logprobs": []}]}]
)
def test_replies_of_another_shape_are_told(content: Any) -> None:
    with pytest.raises(Odd):
        read_vllm(content, [1, 2], 1, 3)
    with pytest.raises(Odd):
        read_echo(content, ["a", "b"], 1, 3, None)


@pytest.mark.parametrize(
    "changes", [{"top_logprobs": [None, {"b": -1.0}]}, {"token_logprobs": [None, None, -1.0]},
                {"top_logprobs": [None, {"b": -1.0}, {"c": None}]}]
)  # fmt: skip
def test_columns_that_do_not_fit_are_told(changes: dict[str, Any]) -> None:
    columns = {"tokens": ["a", "b", "c"], "token_logprobs": [None, -1.0, -1.0],
               "top_logprobs": [None, {"b": -1.0}, {"c": -1.0}]}  # fmt: skip
    fine = {"choices": [{"logprobs": columns}]}
    assert read_echo(fine, ["a", "b", "c"], 1, 1, None).own.tolist() == [-1.0, -1.0]
    with pytest.raises(Odd):
        read_echo({"choices": [{"logprobs": {**columns, **changes}}]}, ["a", "b", "c"], 1, 1, None)


def test_one_listed_log_prob_of_a_text_may_be_two_tokens(  # the likeliest, and its own with the same text
) -> None:
    columns = {"tokens": ["a", "b"], "token_logprobs": [None, -3.0], "top_logprobs": [None, {"b": -3.0}]}
    assert not read_echo({"choices": [{"logprobs": columns}]}, ["a", "b"], 1, 1, None).whole.any()


def test_seeds_are_their_own(  # each request's
) -> None:
    assert len({seed_of(seed, number) for seed in range(50) for number in range(50)}) == 2500
    assert all(0 <= seed_of(2**40 - 1, number) < 2**31 for number in range(100))
