"""How often ``gradtrace fix`` is right: ``python repairs.py FOLDER …``.

A folder holds programs that fail and, under ``fixed/``, their repaired twins by the same names;
files that begin with ``h`` are parts of others.  Each program is repaired, and what was proven is
held against the twin: the gradients at each step of an optimizer, or those that are left at the
end.  A proof of other gradients is wrong; where several repairs are shown with the question that
decides, one of them must be right.
"""

import sys
import time
from collections import Counter
from contextlib import chdir
from pathlib import Path

from gradtrace.repair.judge import Judge
from gradtrace.repair.proof import Proof, prove
from gradtrace.repair.proof_text import outcome
from gradtrace.repair.run.observations import RunLimits, trains_alike
from gradtrace.repair.run.processes import Launcher

LIMITS = RunLimits(seconds=60)


def judged(proof: Proof, folder: Path, name: str) -> str:
    """``right`` or ``wrong``, and how sure of itself the proof is."""
    found = outcome(proof)
    if not proof.accepted:
        return found
    with chdir(folder / "fixed"), Launcher([name]) as launcher:
        twin = launcher.run({}, LIMITS._replace(failing_call=proof.original.failing_call))
    trained = Judge(proof.original).trained
    right = [trains_alike(one.run, twin, trained) for one in proof.accepted]
    return f"{found}, {'right' if any(right) else 'wrong'}"


def main(folders: list[Path]) -> None:
    counts: dict[bool, Counter[str]] = {True: Counter(), False: Counter()}
    for folder in folders:
        for path in sorted(folder.glob("[!h]*.py")):
            began = time.perf_counter()
            with chdir(folder), Launcher([path.name]) as launcher:
                proof = prove(launcher, LIMITS)
                verdict = judged(proof, folder, path.name)
            raises = proof.original.status == "raised"
            silent = (proof.original.diagnosis or {}).get("family") == "silent"
            counts[raises and not silent][verdict] += 1
            best = proof.accepted[0].candidate.title if proof.accepted else ""
            seconds = time.perf_counter() - began
            print(f"{path.stem:<34} {verdict:<18} {seconds:4.0f} s  {best[:70]}", flush=True)
    for raises, count in counts.items():
        kind = "raise" if raises else "raise nothing of autograd's"
        print(f"{sum(count.values())} programs that {kind}: {dict(count)}")


if __name__ == "__main__":
    main([Path(folder).absolute() for folder in sys.argv[1:]])
