"""Every design on every trace, which no paper has."""

from .document import listing, show, table
from .laboratory import PAGING

DESIGNS = ("none", "cervera", "hp", "castro", "zswap", "default", "belady")
BELADY_TIMES = 1.3


def measure(lab):
    """A row for each trace and memory size that pages without compression: modelled seconds."""
    rows = []
    for name in lab.programs:
        for memory in dict.fromkeys(lab.memories(name)[1:]):
            found = lab.sims(name, memory, DESIGNS)
            seconds = {row["design"]: row["modelled_seconds"] for row in found}
            if seconds["none"] > PAGING:
                rows.append([f"{name}, {memory} MiB", *(seconds[design] for design in DESIGNS)])
    return rows


def text(lab):
    """The section."""
    rows = measure(lab)
    ours, bound = DESIGNS.index("default") + 1, DESIGNS.index("belady") + 1
    behind = [f"{row[0]} (`{DESIGNS[row.index(min(row[1:ours])) - 1]}` {show(min(row[1:ours]))}, "
              f"`default` {show(row[ours])})" for row in rows if min(row[1:ours]) < row[ours]]
    times = [row[ours] / row[bound] for row in rows if row[bound] > 0]
    far = [f"{row[0]} ({show(row[ours] / row[bound])})" for row in rows
           if row[ours] > BELADY_TIMES * row[bound] > 0]
    return f"""## Every design on every trace, modelled s

`zpager sim --design {",".join(DESIGNS)} --disk hdd --memory M`; `belady` knows the future and has
`default`'s codec (docs/simulator.md). Where nothing pages without compression there is no row.

{table(["workload, memory", *DESIGNS], rows)}
`default` is slower than the best of the four and of `none` for: {listing(behind)}. It takes
{show(min(times, default=0.0))} to {show(max(times, default=0.0))} times what `belady` takes, more
than {BELADY_TIMES} times for: {listing(far)}.
"""
