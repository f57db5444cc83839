"""Runs over prompts with their targets, and over chats."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import rote
from rote import ModelOptions, Run, Scheme
from rote.errors import InputError, RunError
from rote.report.keys import plain
from rote.report.text.passage import passage_lines
from rote.report.text.words import summary_lines
from tests import tiny
from tests.corpus.test_prompts import CHATML, GEMMA
from tests.reference import prompts as reference
from tests.reference import verbatim

LINES: list[dict[str, Any]] = [
    {
        "id": "whole",
        "prompt": "nor did Alice think it so very much out of the way to hear the",
        "target": " Rabbit say",
    },
    {
        "id": "half",
        "prompt": "nor did Alice think it so ver",
        "target": "y much out of the way to hear",
        "split": "odd",
    },
    {"id": "one", "prompt": "Alice was beginning to get very tired of sitting by her", "target": " sister"},
    {"id": "nothing", "prompt": "", "target": "Alice"},
    {"id": "names", "prompt": "The end.<|eos|>", "target": "<|bos|>Down"},
]
BOS = 0


@pytest.fixture(scope="module")
def run(bundled: Any, tmp_path_factory: pytest.TempPathFactory) -> Run:
    path = tmp_path_factory.mktemp("prompts") / "examples.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in LINES))
    return rote.score(bundled, path, schemes=[Scheme(top_k=None), Scheme()], out=path.parent / "run")


def test_numbers_are_those_of_an_outside_computation(run: Run, bundled: Any) -> None:
    rows = {(row["example_id"], row["scheme"]): row for row in run.scores.to_dicts()}
    apart = []
    for line in LINES:
        prefix, suffix, together = reference.split(line["prompt"], line["target"], bundled.tokenizer)
        logits = verbatim.suffix_logits(bundled._model, prefix, suffix, BOS)
        for scheme in (Scheme(top_k=None), Scheme()):
            row = rows[line["id"], str(scheme)]
            want = verbatim.log_p_z(logits, suffix, 1.0, scheme.top_k, None)
            assert row["log_prob"] == pytest.approx(want, abs=1e-4)
            assert len(row["ranks"]) == len(suffix)
        apart += [] if together else [line["id"]]
    assert apart == ["half"]
    assert {len(reference.plain(line["target"], bundled.tokenizer)) for line in LINES} == {1, 4, 8}


def test_what_was_tokenised_apart_is_told(run: Run) -> None:
    assert run.manifest.source.apart == 1
    told = {entry.id: entry.tokenised for entry in run.examples}
    assert told == {line["id"]: "apart" if line["id"] == "half" else "together" for line in LINES}
    assert [entry.prefix_text for entry in run.examples] == [line["prompt"] for line in LINES]
    assert [entry.suffix_text for entry in run.examples] == [line["target"] for line in LINES]
    words = [plain(line) for line in summary_lines(run.view)]
    said = "in 1 of 5 examples the border falls inside a token: prompt and target were tokenised apart."
    assert next(line for line in words if line.startswith("prompts")).split(maxsplit=1)[1].startswith(said)
    page = (run.folder / "report.html").read_text()
    assert "prompt and target were tokenised apart" in page
    assert page.count("inside a token</td>") == 1  # of the table of examples
    shown = "\n".join("".join(text for _, text in line) for line in passage_lines(rote.show(run, example="half")))
    assert "The border falls inside a token, so that prompt and target were tokenised apart." in shown
    shown = "\n".join("".join(text for _, text in line) for line in passage_lines(rote.show(run, example="whole")))
    assert "border" not in shown
    table = run.export("jsonl").files[0].read_text()
    assert [json.loads(line)["tokenised"] for line in table.split("\n") if line][2:4] == ["apart", "apart"]


def test_prompts_that_all_split_cleanly_are_told_so_in_the_method(bundled: Any, tmp_path: Path) -> None:
    run = rote.score(bundled, [LINES[0]], out=tmp_path / "run")
    assert run.manifest.source.apart == 0
    assert not [line for line in summary_lines(run.view) if line.startswith("prompts")]
    page = (run.folder / "report.html").read_text()
    assert "tokenised together with their targets, and split where the target begins" in page


def test_a_prompt_may_be_empty_where_there_is_a_bos(tiny_folder: Path, tmp_path: Path) -> None:
    model = rote.load(tiny_folder, ModelOptions(device="cpu", bos="never"))
    with pytest.raises(InputError, match=r"'nothing' has an empty prefix and no BOS.* Give it a prompt, or a BOS"):
        rote.score(model, LINES, out=tmp_path / "run")


def test_everything_that_reads_a_run_reads_these(run: Run, bundled: Any, tmp_path: Path) -> None:
    """Targets of one token to several, in one file."""
    without = rote.load("bundled", ModelOptions(device="cpu", bos="never"))
    lines = [line for line in LINES if line["prompt"]]
    first, second = (rote.score(model, lines, out=tmp_path / str(i)) for i, model in enumerate((bundled, without)))
    compared = rote.compare([first, second], out=tmp_path / "compared")
    assert compared.result.common_examples == 4
    searched = rote.score(bundled, lines, near=rote.Near(tolerance=0), out=tmp_path / "near")
    assert searched.scores["verdict"].to_list() == ["extractable", "not extractable", "extractable", "not extractable"]
    with pytest.raises(InputError, match="'one', which has 1 token; use a tolerance below that"):
        rote.score(bundled, lines, near=rote.Near(tolerance=1), out=tmp_path / "nearer")
    checked = rote.check(run, bundled, samples=20, examples=["nothing", "one"])
    assert len(checked.passages) == 2
    assert len(run.export("lm-eval").files) == 3
    with pytest.raises(InputError, match=r"number 1: a sweep cuts prompts.*a prompt and its target are used whole"):
        rote.sweep(bundled, lines, prefixes=[2, 3], out=tmp_path / "sweep")


# --- chats


def chat_folder(folder: Path, template: str) -> Path:
    tiny.save(folder)
    (folder / "chat_template.jinja").write_text(template)
    return folder


def test_a_chat_is_scored_as_its_template_has_it(tmp_path: Path) -> None:
    model: Any = rote.load(chat_folder(tmp_path / "model", CHATML), ModelOptions(device="cpu"))
    run = rote.score(model, [{"prompt": "Who?", "target": "Me <|eos|>"}], chat=True, out=tmp_path / "run")
    prefix = [*ids(model, "user\nWho?"), 1, *ids(model, "\n"), 0, *ids(model, "assistant\n")]
    suffix = ids(model, "Me <|eos|>")
    (entry,) = run.examples
    assert (entry.prefix, entry.suffix, entry.tokenised) == (prefix, suffix, "chat")
    assert entry.prefix_text == "user\nWho?<|eos|>\n<|bos|>assistant\n"  # control tokens are seen
    want = verbatim.log_p_z(verbatim.suffix_logits(model._model, prefix, suffix, BOS), suffix, 1.0, 40, None)
    assert run.scores["log_prob"][0] == pytest.approx(want, abs=1e-4)
    by_hand = rote.verbatim(model, [{"messages": [{"role": "user", "content": "Who?"}], "target": "Me <|eos|>"}])
    assert by_hand[0].log_prob == pytest.approx(want, abs=1e-4)

    assert run.manifest.chat is not None
    template = run.manifest.chat.sha256
    assert run.manifest.source.apart is None
    assert template in (run.folder / "report.html").read_text()
    assert any(line.startswith("chat") and template in line for line in map(plain, summary_lines(run.view)))

    (tmp_path / "model" / "chat_template.jinja").write_text(CHATML.replace("'\n'", "' \n'"))
    other = rote.load(tmp_path / "model", ModelOptions(device="cpu"))
    with pytest.raises(RunError, match=r"chat\.sha256"):
        rote.score(other, [{"prompt": "Who?", "target": "Me <|eos|>"}], chat=True, out=tmp_path / "run")


def test_without_a_bos_the_template_is_used_as_it_is(tmp_path: Path) -> None:
    folder = chat_folder(tmp_path / "model", GEMMA)
    once, never = (rote.load(folder, ModelOptions(device="cpu", bos=bos)) for bos in ("auto", "never"))
    line = [{"prompt": "Who?", "target": "Me"}]
    one = rote.score(once, line, chat=True, out=tmp_path / "once")
    two = rote.score(never, line, chat=True, out=tmp_path / "never")
    assert [BOS, *one.examples[0].prefix] == two.examples[0].prefix
    assert one.scores["log_prob"][0] == pytest.approx(two.scores["log_prob"][0], abs=1e-5)  # the very same tokens


def ids(model: Any, text: str) -> list[int]:
    return reference.plain(text, model.tokenizer)


def test_a_template_that_asks_for_the_day(tmp_path: Path) -> None:
    template = "{{ bos_token }}Today is {{ strftime_now('%Y-%m-%d') }}. {{ messages[0]['content'] }}"
    model = rote.load(chat_folder(tmp_path / "model", template), ModelOptions(device="cpu"))
    run = rote.score(model, [{"prompt": "Who?", "target": "Me"}], chat=True, out=tmp_path / "run")
    assert run.examples[0].prefix_text == "Today is 2024-07-26. Who?"
    assert run.manifest.chat is not None
    assert run.manifest.chat.date == "2024-07-26"
    page = re.sub("<[^>]*>", "", (run.folder / "report.html").read_text())
    assert "It asks for today’s date and was told 2024-07-26." in page
