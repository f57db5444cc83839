"""rote check."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from rote.cli.command import Asked, command
from rote.cli.fit import print_lines, print_rows

if TYPE_CHECKING:
    from rote import Checked


@command("rote check runs/alice-bundled --passages 10 --samples 1000")
def check(checked: Checked, asked: Asked) -> None:
    """Does the model do what p_z says? Generates from the prefixes, with transformers' own sampler, and counts."""
    from rote.report.text import numbers

    out = Console(highlight=False)
    counts = [attempts.n for attempts in checked.passages[0].attempts if attempts.n > 1]
    table = Table("example", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in ("p_z", "generated", "95% interval", *(f"in {n}" for n in counts)):
        table.add_column(name, no_wrap=True)
    rows = []
    for row in checked.passages:
        low, high = row.interval
        mark = "" if low <= row.p_z <= high else " !"
        tries = [f"{a.computed:.3f}/{a.sampled:.3f}" for a in row.attempts if a.n > 1]
        shares = f"{numbers.count(row.hits)}/{numbers.count(row.samples)}"
        rows.append([row.example_id, f"{row.p_z:.3g}", shares, f"{low:.4f}–{high:.4f}{mark}", *tries])
    print_rows(out, table, rows)
    total, model = len(checked.passages), checked.model
    print_lines(out, ["", "95% interval: of the generated share; ! where p_z lies outside."])
    if counts:
        told = "in n: the chance of the suffix at least once in n generations, computed/from the samples."
        print_lines(out, [told])
    judged = (
        f"{checked.outside_interval} of {total} computed probabilities lie outside the 95% interval of the generated "
        f"share; {0.05 * total:.2g} are expected by chance. The most surprising passage has a p-value of "
        f"{checked.smallest_p_value:.2g}; among {total}, one as surprising has probability "
        f"{checked.smallest_of_all:.2g}."
        if total > 1
        else f"The computed probability lies {'outside' if checked.outside_interval else 'within'} the 95% interval of "
        f"the generated share; its p-value is {checked.smallest_p_value:.2g}."
    )
    print_lines(out, [judged, ""])
    facts = {"model": f"{numbers.literal(model.title)}, {numbers.weights(model)}", "scheme": checked.scheme}
    facts["bos"] = numbers.bos(model)
    print_lines(out, [f"{name:<12}{value}" for name, value in facts.items()])
    for row in checked.passages:
        for number, output in enumerate(row.outputs, 1):
            same = "the suffix" if output.same else "something else"
            print_lines(out, ["", f"{row.example_id}, generation {number}: {same}"], style="bold")
            print_lines(out, [numbers.literal(output.text)])
