"""What the site does to a stored player: its front end as a classic script, links that lead."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "book" / "_ext"))

from players import EXPORTS, data_of, unknown, with_data

SOURCE = {"two_losses": {"9": "loss1.backward()", "10": "loss2.backward()"}}


@pytest.mark.parametrize(
    ("module", "script"),
    [
        ("export default { render };\n", "\n"),
        ("const a = 1;\nexport { a, b };\n", "const a = 1;\n\n"),
        ("export function f() {}\n", "function f() {}\n"),
        ("  export it;\n", "  export it;\n"),
    ],
)
def test_a_module_without_its_exports(module, script):
    assert EXPORTS.sub("", module) == script


@pytest.mark.parametrize(
    ("target", "complaint"),
    [
        ("two_losses", None),
        ("two_losses:after=9", None),
        ("two_losses:line=10:retain_graph=True", None),
        ("two_lossess:after=9", "no player on this page plays two_lossess; it has two_losses"),
        ("two_losses:after=11", "two_losses has no line 11"),
    ],
)
def test_a_link_that_leads_nowhere_is_named(target, complaint):
    assert unknown(target, SOURCE) == complaint


def test_data_is_read_and_written_back():
    page = '<div><script type="application/json">{"step":null,"a":"\\u003c/script>"}</script></div>'
    data = data_of(page)
    assert data == {"step": None, "a": "</script>"}
    assert with_data(page, data) == page
    assert '"step":3' in with_data(page, data | {"step": 3})
