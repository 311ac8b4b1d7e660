"""Evidence about a GradScaler that refused a call."""

import re

from gradtrace.autograd import source
from gradtrace.explaining.evidence.base import TextEvidence


class ScalerEvidence(TextEvidence):
    """Evidence about a GradScaler that was not updated between two uses of an optimizer."""

    def __post_init__(self) -> None:
        """Find the scaler's only ``update()``, if an iteration that cleared gradients left it out.

        Backward calls were made in the same way before, so the refused call is not the first one.
        """
        line = "" if self.raised_at is None else self.raised_at.text
        use = re.search(r"([\w.]*?(\w+))\.(unscale_|step)\(.*?\)", line)
        *earlier, last = [call.path for call in self.timeline.calls] or [{}]
        if use is None or self.frame is None or last not in earlier:
            return
        uses, updates = (
            [p for file in self.files for p in source.calls_of(file, [name]) if text in p.text]
            for name, text in ((use[3], use[0]), ("update", f"{use[2]}.update("))
        )
        is_cleared = source.is_run_each_time(self.frame, r"\.zero_grad\(")
        if is_cleared and len(uses) == len(updates) == 1:
            self.update_is_skipped, self.began_at = True, updates[0]
            self.names = {"scaler": use[1], "use": use[0]}
