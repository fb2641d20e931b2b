"""What a reader does with the sums of a reason: computes them from the numbers that are shown."""

import re
from decimal import Decimal

_NAMED = re.compile(r"[A-Za-z]+:(-?[\d.]+)")
_FINEST = {"CPU": Decimal(1), "Mem": Decimal("1e-9")}  # a milli-core and a byte: percentages are truncated to these


def assert_sums_are_right(reason: str) -> None:
    """Each formula of "head:result = formula; ..." gives the result that it shows, to half of its last decimal."""
    for sentence in reason.split("; "):
        head, formula = sentence.split(" = ")
        result = Decimal(head.rpartition(":")[2])
        as_code = re.sub(r"(-?\d[\d.]*)", r"Decimal('\1')", _NAMED.sub(r"\1", formula))
        computed = eval(as_code, {"Decimal": Decimal, "min": min, "max": max})
        exponent = result.as_tuple().exponent
        assert isinstance(exponent, int)
        last = Decimal(1).scaleb(exponent)
        finest = _FINEST[head.partition("[")[2][:3]]
        assert abs(computed - result) <= max(last / 2, finest), sentence
