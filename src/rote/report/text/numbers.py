"""How numbers, settings and foreign text are shown to people. Everything the report prints goes through here."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterable

from markupsafe import Markup, escape

from rote.models.base import ModelIdentity, ServedModel, title_of
from rote.models.probed import ChatIdentity, ReferenceIdentity
from rote.odds import queries_needed
from rote.report.keys import MARKS, element_of_marks, mark
from rote.store.comparison import ComparedModel
from rote.store.summary import Coverage, Rate

MISSING = "–"

# C0 controls and DEL have no look of their own and NUL is not even allowed in HTML, so each is shown as its control
# picture; tab, line feed and the carriage return before one stay. What turns the direction of what follows it, numbers
# included, is shown as an arrow. C1 controls begin escape sequences; lone surrogates cannot be written as UTF-8.
TURNING = {
    0x061C: "↢", 0x200E: "↦", 0x200F: "↤", 0x202A: "⇢", 0x202B: "⇠", 0x202C: "↨", 0x202D: "⇛", 0x202E: "⇚",
    0x2066: "⇨", 0x2067: "⇦", 0x2068: "⇹", 0x2069: "⇳",
}  # fmt: skip
_VISIBLE: dict[int, int | str] = {code: 0x2400 + code for code in range(0x20) if chr(code) not in "\t\n\r"}
_VISIBLE |= {0x7F: 0x2421, **TURNING}
_VISIBLE |= dict.fromkeys([*range(0x80, 0xA0), *range(0xD800, 0xE000), *map(ord, MARKS)], 0xFFFD)
_LONE = "\r(?!\n)"
_INVISIBLE = re.compile(
    f"[{re.escape(''.join(map(chr, _VISIBLE)))}]|{_LONE}"
)  # most texts have none: translating is slow


def literal(text: str) -> str:
    """The text as it can be shown: a mark, one for one, for each character that is not seen or turns the writing."""
    return re.sub(_LONE, "␍", text.translate(_VISIBLE)) if _INVISIBLE.search(text) else text


def marks_in(texts: Iterable[str]) -> str:
    """What the marks stand for that `literal` puts into these texts; nothing of pictures, which say it themselves."""
    found: set[str] = set()
    for text in texts:
        found |= set(_ARROWS.findall(text))
    told = [
        f"{TURNING[ord(c)]} stands for U+{ord(c):04X}, {unicodedata.name(c).lower()}" for c in sorted(found - {"\r"})
    ]
    return "; ".join([*told, *(["␍ stands for a carriage return without a line feed"] if "\r" in found else [])])


_ARROWS = re.compile(f"[{''.join(map(chr, TURNING))}]|{_LONE}")


def typeset(text: str) -> Markup:
    """A sentence of the report as HTML: escaped, p_z with its subscript, no line break in `τ = 0.001`.

    File and model names stand in such sentences too: a p_z that is part of a longer name stays as it is.
    """
    return element_of_marks(text, _typeset)


def _typeset(words: str) -> Markup:
    """The same for words without marks; where they end with `τ = `, a marked number follows."""
    html = re.sub(r"(?<![\w/.-])p_z(?![\w/-]|\.\w)", "<i>p</i><sub>z</sub>", str(escape(words)))
    return Markup(re.sub(r"\b([τpn]) ([=≥]) (?=\d|$)", "\\1\u00a0\\2\u00a0", html))


def name(text: str) -> str:
    """A name or another foreign text within a sentence, shown literally; where it has a key, it keeps it."""
    return mark(text, literal(text), "text")


def title(model: ModelIdentity | ComparedModel | ChatIdentity | ReferenceIdentity) -> str:
    """What a model is called in titles and tables: its label, or the end of its name, which has the name's key."""
    if model.label:
        return name(model.label)
    adapter = getattr(model, "adapter", None)
    if adapter is None:
        return mark(model.name, literal(model.title), "title")
    parts = ((model.name, title_of(model.name, None)), (adapter.name, title_of(adapter.name, None)))
    return " + ".join(mark(key, literal(shown), "title") for key, shown in parts)


def short(fingerprint: str | None) -> str:
    """The beginning of a hash, enough to tell it from others."""
    if not fingerprint:
        return MISSING
    return mark(fingerprint, literal(fingerprint[:16]) + ("…" if len(fingerprint) > 16 else ""), "text")


def weights(model: ModelIdentity | ComparedModel) -> str:
    """Which weights these are; of a model that is served, that nobody can tell."""
    if model.served is not None:
        return f"served by {name(model.served.url)}; its weights cannot be checked"
    return f"weights {short(model.fingerprint)}"


def count(number: float | None) -> str:
    """1234567 as `1,234,567`."""
    return MISSING if number is None else mark(number, f"{number:,.0f}", "count")


def counted(number: int, singular: str, plural: str | None = None) -> str:
    """`1 window`, `2,000 windows`."""
    return f"{count(number)} {singular if number == 1 else plural or singular + 's'}"


def length(number: int, unit: str) -> str:
    """Of a prefix or suffix, in its unit: `50 tokens`, `1 character`."""
    return counted(number, str(unit).removesuffix("s"))


def rate(share: Rate) -> str:
    """One of `rote.analysis.rates`' rates; a range where rows of which only a bound is known leave doubt."""
    if share.rate_upper > share.rate:
        return f"{percent(share.rate)} to {percent(share.rate_upper)}"
    return percent(share.rate)


def bounded(model: ModelIdentity | ComparedModel) -> str:
    """Why of some rows only an upper bound on p_z is known, after "12 windows"; everything that says so says this."""
    if model.served is None:
        return "given up early, as certain to end below τ"
    return f"left open by the {listed(model.served)}"


def listed(served: ServedModel) -> str:
    most = "" if served.listed is None else f" of {counted(served.listed, 'log-prob')}"
    return f"server’s list{most}"


def yes(known: bool | None) -> str:
    """None: a served model's list does not tell."""
    return "not known" if known is None else "yes" if known else "no"


def rank(of: int, served: ServedModel | None) -> str:
    """A token's rank, as far as a served model's list tells it."""
    if not of:
        return "not told"
    beyond = served is not None and served.listed is not None and of == served.listed + 1
    return f"> {count(of - 1)}" if beyond else count(of)


def percent(share: float | None) -> str:
    """A share as a percentage of about three digits; only exactly 0 and exactly 1 print as 0% and 100%."""
    return MISSING if share is None or math.isnan(share) else mark(share, _percent(100 * share), "percent")


def percents(least: float | None, most: float | None) -> str:
    """A share; a range where it is at the most more than at the least."""
    return percent(least) if most in (None, least) else f"{percent(least)} to {percent(most)}"


def covered(at: Coverage) -> str:
    """How much is covered of what was looked at; a range where a served model's list leaves windows open."""
    return percents(at.share_of_looked_at, at.share_of_looked_at_upper)


def _percent(value: float) -> str:
    if value in (0, 100):
        return f"{value:.0f}%"
    if value >= 99.95:
        return f"{math.floor(value * 1000) / 1000:.3f}%"
    if value < 0.001:
        return f"{value:.1e}%"
    decimals = 1 if value >= 9.995 else 2 if value >= 0.1 else 4
    return f"{value:.{decimals}f}%"


def threshold(share: float) -> str:
    """A chosen threshold, printed as chosen: 0.001 is `0.1%`, 0.5 is `50%`."""
    return mark(share, f"{100 * share:.6g}%", "percent")


def setting(number: float) -> str:
    """A number that was chosen, printed as chosen: tau, a tolerance, a seed."""
    return mark(number, f"{number:g}" if isinstance(number, float) else str(number), "number")


def average(number: float) -> str:
    """A mean of counts: `1,234.5`."""
    return mark(number, f"{number:,.1f}", "number")


def place(share: float) -> str:
    """Where something stands in a text: `43.2%` of it come before."""
    return mark(share, f"{100 * share:.1f}%", "place")


def points(difference: float) -> str:
    """A difference of two shares in percentage points, with its sign: `+12.4`."""
    if difference == 0:
        return mark(difference, "0", "points")
    shown = _percent(100 * abs(difference)).removesuffix("%")
    return mark(difference, f"{'+' if difference > 0 else '-'}{shown}", "points")


def probability(log_prob: float | None) -> str:
    """exp(log_prob) in about three digits, from 1 down to far below the smallest float."""
    missing = log_prob is None or math.isnan(log_prob)
    return MISSING if missing or log_prob is None else mark(log_prob, _probability(log_prob), "probability")


def _probability(log_prob: float) -> str:
    if log_prob == -math.inf:
        return "0"
    value = math.exp(log_prob)
    if log_prob >= 0:
        return "1"
    if value >= 0.9995:  # three digits would say 1, which is a claim of certainty
        digits = min(math.ceil(-math.log10(-math.expm1(log_prob))), 6)
        return f"{min(math.floor(value * 10**digits), 10**digits - 1) / 10**digits:.{digits}f}"
    return f"{value:.3g}" if value >= 0.001 else scientific(log_prob)


def chance(share: float | None) -> str:
    """A probability that is given as such, and not by its logarithm, such as a mean of several."""
    if share is None:
        return MISSING
    return mark(share, _probability(math.log(share)) if 0 < share < 0.9995 else f"{share:.3g}", "number")


def interval(lower: float, upper: float) -> str:
    """Two bounds on a probability, rounded away from each other: what is printed holds too."""
    if lower >= upper - 1e-9 and 0 < lower < 0.9995:
        return mark(lower, _probability(math.log(lower)), "number")
    low = f"{math.floor(lower * 1000) / 1000:.3f}" if 0.001 <= lower < 1 else None
    high = f"{math.ceil(upper * 1000) / 1000:.3f}" if 0.001 <= upper < 0.999 else None
    if low is None:
        low = _tiny(lower, -1) if 0 < lower < 1 else f"{lower:.0f}"
    if high is None:
        high = "1" if upper >= 0.999 else _tiny(upper, 1) if upper > 0 else "0"
    return f"{mark(lower, low, 'number')} to {mark(upper, high, 'number')}"


def _tiny(value: float, away: int) -> str:
    """A probability below 0.001 in two digits, rounded down (`away` -1) or up (1)."""
    digits, exponent = f"{value:.1e}".split("e")
    tenths, power = round(10 * float(digits)), int(exponent)
    if (float(f"{digits}e{exponent}") - value) * away < 0:
        tenths += away
    if tenths in (9, 100):
        tenths, power = (99, power - 1) if tenths == 9 else (10, power + 1)
    return f"{tenths / 10:.1f}e{power:+03d}"


def expected_prompts(log_prob: float) -> str:
    """Mean number of generations up to and including the first that is the suffix: 1 / p_z."""
    printed = prompts(math.exp(-log_prob)) if log_prob > _FLOAT else _unless_zero(log_prob, scientific(-log_prob))
    return mark(log_prob, printed, "expected prompts")


def one_in(log_prob: float) -> str:
    """How often the suffix comes out: `1 in 32 prompts`; where that is more than every other one, `75% of prompts`."""
    if log_prob >= math.log(0.95):
        return "every prompt" if log_prob >= 0 else "nearly every prompt"
    if log_prob > math.log(0.5):
        return f"{100 * math.exp(log_prob):.0f}% of prompts"
    return f"1 in {expected_prompts(log_prob)} prompts"


def prompts_for(log_prob: float, at_least: float) -> str:
    """Fewest generations that show the suffix at least once with probability `at_least`."""
    printed = _unless_zero(log_prob, scientific(math.log(-math.log1p(-at_least)) - log_prob))
    if log_prob > _FLOAT:
        printed = prompts(queries_needed(math.exp(log_prob), at_least=at_least))
    return mark(log_prob, printed, f"prompts for {at_least:g}")


def prompts(number: float) -> str:
    """A number of prompts: `1.03`, `1,400`, `2.1 million`, `4.2e+31`."""
    if number >= 999.5e12:
        return scientific(math.log(number))
    for size, name in ((1e12, "trillion"), (1e9, "billion"), (1e6, "million")):
        if number >= 0.9995 * size:
            return f"{number / size:.3g} {name}"
    if number < 9.95 and not float(number).is_integer():
        return f"{number:.2f}"
    return f"{number:,.0f}"


_FLOAT = -700.0  # exp of anything below leaves the range in which floats keep their precision


def _unless_zero(log_prob: float, text: str) -> str:
    return "never" if log_prob == -math.inf else text


def scientific(log_value: float) -> str:
    """exp(log_value) as `3.1e-07`, also where it is far outside the range of floats."""
    if not math.isfinite(log_value):
        return MISSING
    exponent = math.floor(log_value / math.log(10))
    mantissa = math.exp(log_value - exponent * math.log(10))
    if mantissa >= 9.95:
        exponent, mantissa = exponent + 1, mantissa / 10
    return f"{mantissa:.1f}e{exponent:+03d}"


def dollars(cost: float | None) -> str:
    """An amount of US dollars in three digits or more: `$0.0123`, `$4.20`."""
    if cost is None:
        return MISSING
    shown = f"{cost:,.2f}" if cost >= 1 else f"{cost:#.3g}" if cost else "0"
    return f"${mark(cost, shown, 'number')}"


def duration(seconds: float | None) -> str:
    return MISSING if seconds is None else mark(seconds, _duration(seconds), "duration")


def _duration(seconds: float) -> str:
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600:,} h {whole % 3600 // 60:02d} min"


def bos(model: ModelIdentity | ComparedModel) -> str:
    """What stood before every prefix, and why."""
    policy = model.bos
    if model.bos_token is not None:
        why = "as asked" if policy == "always" else "because the tokenizer has one"
        first = f"BOS {bos_token(model)} before every prefix"
        return f"{policy}: {first}, {why}; it is not counted among the prefix tokens."
    why = "as asked" if policy == "never" else "because the tokenizer has none"
    return f"{policy}: no BOS token stands before the prefixes, {why}."


def bos_token(model: ModelIdentity | ComparedModel) -> str:
    """The token that stood before every prefix: what it is, and its id."""
    if model.bos_token is None:
        return "none"
    return f"'{name(model.bos_text or MISSING)}' (id {setting(model.bos_token)})"
