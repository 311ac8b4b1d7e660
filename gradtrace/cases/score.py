"""Score diagnosis on real failures: ``python gradtrace/cases/score.py [names] [options]``.

Every case and layout runs under a plain and a strict watch, the repaired twins too; printed are
what was right of each and the totals.  Names are beginnings of names, or patterns: ``*_recursion``.
"""

import argparse
import json
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import launch
from catalogue import FAILING, FIXED, HERE, Case, Place, chosen
from gradients import differences
from launch import PLAIN, RECORD, STRICT, Job, Outcome

# What obeying the printed advice leads to, by the programs in which it is obeyed: all of them train
# what the repaired twin trains, some do, none does; or there is none in which this text is obeyed.
SOLVES, HALF, WRONG, NOT_OBEYED = ADVICE = ("solves", "half solves", "wrong", "not obeyed")

FLOOR = HERE / "floor.json"
_WORD = re.compile(r"[a-z_]{3,}")


@dataclass(frozen=True)
class Score:
    """What the tool said of one program under one watch, judged.

    ``marks`` maps what can be right to whether it is; what the truth is not known of is left out.
    ``wrong_and_certain`` is the worst that can be said.  ``alarms`` are what it said of the twin.
    ``advice`` is one of :data:`ADVICE`.
    """

    case: Case
    mode: str
    report: dict[str, Any] | None
    marks: dict[str, bool]
    alarms: tuple[str, ...] = ()
    advice: str | None = None

    @property
    def cause(self) -> str | None:
        return None if self.report is None else self.report["cause"]

    @property
    def confidence(self) -> str | None:
        return None if self.report is None else self.report["confidence"]

    @property
    def fix(self) -> str | None:
        return None if self.report is None else self.report["fix"]

    @property
    def printed(self) -> str:
        """The advice, with what stands beside it for another case; empty if there is none."""
        return "" if self.report is None else _printed(self.report)

    @property
    def solved(self) -> bool:
        return all(self.marks.values())

    @property
    def wrong_and_certain(self) -> bool:
        if self.confidence != "certain":
            return False
        return not self.marks["cause"] or self.advice in (HALF, WRONG)

    @property
    def circular(self) -> bool:
        """Strict advises strict, or a wrong advice says only what PyTorch's error says."""
        if self.report is None or self.marks["cause"]:
            return False
        if self.mode == STRICT and "strict" in self.report["fix"]:
            return True
        words = set(_WORD.findall(self.report["fix"].lower()))
        error = set(_WORD.findall((self.report.get("error") or "").lower()))
        return bool(words) and len(words & error) >= 0.8 * len(words)


def judge(
    case: Case, mode: str, outcome: Outcome | None, twin: Outcome, obeyed: dict[str, list[str]]
) -> Score:
    """Compare what was said of a failing program, and of its twin, with the truth.

    ``outcome`` is None of a healthy program, which is all twin; ``obeyed`` are the problems of each
    of the variants in which advice is obeyed.
    """
    if outcome is None:
        return Score(case, mode, None, {}, tuple(_alarms(twin)))
    written = outcome.report or {"family": None, "warnings": []}
    report = written if written["family"] is not None else None
    if case.silent:
        report = _best_warning(case, written["warnings"])
    marks = {
        "family": report is not None and report["family"] in case.families,
        "cause": report is not None and report["cause"] in case.causes,
    }
    places = (
        {key: _at(report[f"{key}_at"]) for key in ("raised", "began", "made", "stored")}
        if report
        else {}
    )
    if case.raises:
        marks["raised"] = places.get("raised") in case.raises
    if case.began:
        marks["began"] = places.get("began") in case.began
    if case.expert:
        marks["expert"] = not set(case.expert).isdisjoint(places.values())
    advice = None if case.bug else _advice(case, report, obeyed)
    if advice is not None:
        marks["advice"] = advice == SOLVES
    return Score(case, mode, report, marks, tuple(_alarms(twin)), advice)


def _advice(case: Case, report: dict[str, Any] | None, obeyed: dict[str, list[str]]) -> str:
    if report is None:
        return NOT_OBEYED
    problems = [
        obeyed[variant]
        for variant in case.advised
        if any(quoted in _printed(report) for quoted in case.says(variant, "obeys"))
    ]
    if not problems:
        return NOT_OBEYED
    sound = sum(not differences for differences in problems)
    return SOLVES if sound == len(problems) else HALF if sound else WRONG


def _printed(report: dict[str, Any]) -> str:
    return "; ".join(filter(None, (report["fix"], report.get("otherwise"))))


def _best_warning(case: Case, warnings: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The warning with the right cause if there is one, else the first."""
    right = [warning for warning in warnings if warning["cause"] in case.causes]
    return next(iter(right or warnings), None)


def _alarms(twin: Outcome) -> Iterable[str]:
    if twin.report is None or twin.code != 0:
        yield f"ended with {twin.code}: {_last_line(twin)}"
    if twin.report is not None:
        if twin.report["family"] is not None:
            yield f"{twin.report['cause']}"
        yield from (warning["cause"] for warning in twin.report["warnings"])


def _last_line(outcome: Outcome) -> str:
    return (outcome.stderr.strip().splitlines() or ["(it said nothing)"])[-1]


def _at(place: dict[str, Any] | None) -> Place | None:
    return None if place is None else (Path(place["file"]).name, place["line"])


def runnable(case: Case) -> bool:
    if case.device == "cpu":
        return True
    import torch

    return torch.cuda.is_available()


def run_cases(cases: list[Case], modes: Iterable[str], command: bool = False) -> list[Score]:
    """Run the cases, their twins, and the programs in which advice is obeyed."""
    pairs = [(case, mode) for case in cases for mode in modes]
    jobs = [
        Job(case.files(variant), case.main, mode)
        for case, mode in pairs
        for variant in (FAILING, FIXED)
        if case.texts[variant]
    ]
    # A forked process finds no CUDA device.
    command = command or any(case.device != "cpu" for case in cases)
    outcomes = iter(launch.run(jobs, command))
    obeyed = obey(cases)
    return [
        judge(
            case, mode, None if case.healthy else next(outcomes), next(outcomes), obeyed[case.name]
        )
        for case, mode in pairs
    ]


def obey(cases: list[Case]) -> dict[str, dict[str, list[str]]]:
    """The problems of each advised variant of each case: what differs from the repaired twin."""
    pairs = [
        (case, variant) for case in cases if case.advised for variant in (FIXED, *case.advised)
    ]
    outcomes = launch.run([Job(case.files(variant), case.main, RECORD) for case, variant in pairs])
    records = {
        (case.name, variant): outcome
        for (case, variant), outcome in zip(pairs, outcomes, strict=True)
    }
    return {
        case.name: {
            variant: problems(
                records[case.name, FIXED],
                records[case.name, variant],
                values=not case.says(variant, "differs"),
            )
            for variant in case.advised
        }
        for case in cases
    }


def problems(twin: Outcome, repaired: Outcome, values: bool = True) -> list[str]:
    """What a repaired program does that its twin does not; see :func:`gradients.differences`."""
    if twin.report is None or twin.code != 0:
        raise RuntimeError(f"the repaired twin broke down: {twin.stderr}")
    if repaired.report is None or repaired.code != 0:
        return [f"ends with {repaired.code}: {_last_line(repaired)}"]
    return differences(twin.report, repaired.report, values)


def table(scores: list[Score], texts: bool = False) -> str:
    """One line for each program and watch: a letter for what is right, a dash for what is not.

    With ``texts``, below it the advice that was printed.
    """
    width = max(len(score.case.name) for score in scores)
    lines = [
        "What is right: (f)amily, line that (r)aised, line where it (b)egan, (e)xpert's line,",
        "(c)ause; - wrong or missing, blank not asked.",
        "",
    ]
    for score in scores:
        letters = "".join(
            " " if key not in score.marks else key[0] if score.marks[key] else "-"
            for key in ("family", "raised", "began", "expert", "cause")
        )
        missing = (
            "healthy" if score.case.healthy else "not found" if score.case.silent else "no text"
        )
        words = [score.cause or missing]
        words += [score.confidence or ""]
        words += [f"advice {score.advice}"] * (score.advice is not None)
        words += ["WRONG AND CERTAIN"] * score.wrong_and_certain + ["CIRCULAR"] * score.circular
        words += [f"ALARM ON TWIN: {', '.join(score.alarms)}"] * bool(score.alarms)
        lines.append(f"{score.case.name:<{width}}  {score.mode:<6}  {letters}  {'  '.join(words)}")
        if texts and score.report is not None:
            lines += [
                f"    fix: {score.fix}",
                f"    or:  {score.report.get('otherwise') or '(nothing)'}",
            ]
    return "\n".join(line.rstrip() for line in lines)


def totals(scores: list[Score]) -> dict[str, dict[str, str]]:
    """For each watch and kind of program, how many of how many are right."""
    counts: dict[str, dict[str, str]] = {}
    for mode in dict.fromkeys(score.mode for score in scores):
        of_mode = [score for score in scores if score.mode == mode]
        kinds: dict[str, list[Score]] = {}
        for score in of_mode:
            kinds.setdefault(_kind(score.case), []).append(score)
        for kind, of_kind in kinds.items():
            counts[f"{mode} {kind}"] = _counts(of_kind)
    return counts


def _kind(case: Case) -> str:
    if case.bug is not None:
        return "layouts"
    return "healthy" if case.healthy else "silent" if case.silent else "raising"


def _counts(scores: list[Score]) -> dict[str, str]:
    alarms = {"alarms on twins": str(sum(bool(score.alarms) for score in scores))}
    if scores[0].case.healthy:
        return alarms
    counts = {}
    for key in ("family", "raised", "began", "expert", "cause"):
        marks_of_key = [score.marks[key] for score in scores if key in score.marks]
        if marks_of_key:
            counts[key] = f"{sum(marks_of_key)}/{len(marks_of_key)}"
    for advice in ADVICE if scores[0].advice else ():
        counts[f"advice {advice}"] = str(sum(score.advice == advice for score in scores))
    counts["all right"] = f"{sum(score.solved for score in scores)}/{len(scores)}"
    counts["wrong and certain"] = str(sum(score.wrong_and_certain for score in scores))
    counts["circular"] = str(sum(score.circular for score in scores))
    counts["without text"] = str(sum(score.report is None for score in scores))
    return counts | alarms


def right(scores: list[Score]) -> dict[str, dict[str, str]]:
    """What is right, by name and watch, in words: what the floor holds."""
    marks_by_name: dict[str, dict[str, str]] = {}
    for score in scores:
        marks = [key for key, value in score.marks.items() if value]
        marks += ["quiet"] * (not score.alarms)
        marks_by_name.setdefault(score.case.name, {})[score.mode] = " ".join(sorted(marks))
    return marks_by_name


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--plain", action="store_true", help="under a plain watch only")
    parser.add_argument("--strict", action="store_true", help="under a strict watch only")
    parser.add_argument("--texts", action="store_true", help="what was said, too")
    parser.add_argument("--json", action="store_true", help="all that was said, as JSON")
    parser.add_argument("--command", action="store_true", help="start each by the real command")
    parser.add_argument("--store", action="store_true", help="what is right is the floor from now")
    options = parser.parse_args()
    modes = [PLAIN] * options.plain + [STRICT] * options.strict or [PLAIN, STRICT]
    cases = [case for case in chosen(options.names) if runnable(case)]
    scores = run_cases(cases, modes, options.command)
    wrong = [f"{score.case.name} ({score.mode})" for score in scores if score.wrong_and_certain]
    if options.store and (options.names or len(modes) < 2):
        parser.error("the floor is that of all cases, in both modes")
    if options.store and not wrong:
        FLOOR.write_text(json.dumps(right(scores), indent=1) + "\n", encoding="utf-8")
    if options.json:
        rows = [
            {"name": s.case.name, "mode": s.mode, "said": s.report, "marks": s.marks}
            | {"advice": s.advice, "alarms": s.alarms, "circular": s.circular}
            for s in scores
        ]
        json.dump({"totals": totals(scores), "right": right(scores), "scores": rows}, sys.stdout)
    else:
        print(table(scores, options.texts))
        for name, counts in totals(scores).items():
            print(f"\n{name}: " + ", ".join(f"{key} {value}" for key, value in counts.items()))
    if wrong:
        raise SystemExit(f"certain, and wrong: {', '.join(wrong)}")


if __name__ == "__main__":
    main()
