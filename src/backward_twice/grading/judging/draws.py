"""The hidden inputs: drawn after the submission was read, from a secret that the teacher keeps.

A draw's seed is HMAC(secret, assignment, question, digest of the answers, number).  So no student
knows the inputs beforehand, each submission gets different inputs, and grading again draws the same
inputs.  The secret is created once and stored in the output folder.

The private folder (``--private``) may contain ``<exercise>.py``, with a function for each question
that draws the teacher's own inputs, which are asked in addition::

    def one_update(generator):  # a seeded torch.Generator
        return {...}  # the inputs, as the public question draws them
"""

import hmac
import inspect
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from backward_twice.checks import question
from backward_twice.checks.generator import InputGenerator
from backward_twice.checks.plain import dumps
from backward_twice.grading import GradingError, atomic
from backward_twice.grading.judging.master import Master, QuestionCell

DRAWS = 2
"""How often each question is asked, with inputs of its public kind; and again of private ones."""

Variant = Callable[[torch.Generator], dict[str, Any]]


@dataclass(frozen=True)
class Draws:
    """The secret and the private variants; ``digest`` changes with both, and reveals neither."""

    secret: bytes = field(repr=False)
    variants: Mapping[str, Variant] = field(default_factory=dict)
    source: str = ""

    @property
    def digest(self) -> str:
        return self._hmac("digest", self.source).hex()

    def key(self, *parts: str) -> str:
        """Return a digest of ``parts`` that only the owner of the secret can compute."""
        return self._hmac("key", *parts).hex()

    def seeds(self, master: Master, asked: QuestionCell, answers: str) -> list[int]:
        """Return the seeds of hidden inputs, for :meth:`.Task.inputs`."""
        return [self._seed(master, asked, answers, number) for number in range(DRAWS)]

    def private(self, master: Master, asked: QuestionCell, answers: str) -> list[str]:
        """Return the inputs of the teacher's own variant, if there is one."""
        variant = self.variants.get(asked.question)
        if variant is None:
            return []
        seeds = [self._seed(master, asked, answers, DRAWS + i) for i in range(DRAWS)]
        return [dumps(variant(InputGenerator().manual_seed(seed))) for seed in seeds]

    def _seed(self, master: Master, asked: QuestionCell, answers: str, number: int) -> int:
        seed = self._hmac("seed", master.name, asked.question, answers, str(number))
        return int.from_bytes(seed[:8], "big") >> 1  # torch takes 63 bits

    def _hmac(self, *parts: str) -> bytes:
        return hmac.digest(self.secret, "\0".join(parts).encode(), "sha256")


def read_draws(out: Path, private: Path | None, masters: Mapping[str, Master]) -> Draws:
    """Read the secret, which is created if missing, and the private variants, each tried once.

    Raises GradingError if the secret, the private folder or one of its functions cannot be used.
    """
    secret = _kept_secret(out)
    if private is None:
        return Draws(secret)
    if not private.is_dir():
        raise GradingError(f"there is no private folder {private}")
    variants: dict[str, Variant] = {}
    sources = []
    for path in sorted(private.glob("*.py")):
        if path.stem not in masters:
            raise GradingError(f"{path}: there is no exercise {path.stem!r}")
        variants |= _variants(path, masters[path.stem])
        sources.append(path.read_text(encoding="utf-8"))
    return Draws(secret, variants, "\0".join(sources))


def _kept_secret(out: Path) -> bytes:
    path = out / "secret"
    if not path.exists():
        with atomic.replacing(path) as half:
            half.touch(mode=0o600)
            half.write_text(secrets.token_hex(32))
    secret = path.read_bytes().strip()
    if len(secret) < 16:
        raise GradingError(f"{path} is damaged; delete it to grade all submissions again")
    return secret


def _variants(path: Path, master: Master) -> dict[str, Variant]:
    module = {"__name__": f"private_{path.stem}", "__file__": str(path)}
    try:
        exec(compile(path.read_bytes(), path, "exec", dont_inherit=True), module)
    except Exception as error:
        raise GradingError(f"{path} cannot be read: {type(error).__name__}: {error}") from error
    functions = {
        name: value
        for name, value in module.items()
        if inspect.isfunction(value) and value.__module__ == module["__name__"]
    }
    questions = {question_cell.question for question_cell in master.questions}
    variants = {}
    for name, variant in functions.items():
        full = f"{master.name}.{name}"
        if full in questions:
            _try(path, full, variant)
            variants[full] = variant
        elif not name.startswith("_"):
            valid_names = ", ".join(sorted(q.partition(".")[2] for q in questions))
            raise GradingError(
                f"{path}: {master.name} has no question {name!r}; it has {valid_names} "
                "(functions of another use begin with an underscore)"
            )
    return variants


def _try(path: Path, name: str, variant: Variant) -> None:
    """Raise GradingError if a private variant's inputs vary, or are not the question's."""
    ask = question(name)
    try:
        inputs, repeated = (dumps(variant(InputGenerator().manual_seed(0))) for _ in range(2))
        ask.findings("{}", inputs)
    except Exception as error:
        raise GradingError(
            f"{path}: {name.partition('.')[2]} draws inputs that the question does not accept: "
            f"{type(error).__name__}: {error}"
        ) from error
    if inputs != repeated:
        raise GradingError(
            f"{path}: {name.partition('.')[2]} draws different inputs "
            "each time; take every random number from the generator it receives"
        )
