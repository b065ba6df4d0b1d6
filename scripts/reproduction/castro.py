"""castro's figures 3 and 6 and tables 1 to 3."""

from .document import listing, percents, show, table
from .laboratory import gain, speedup
from .plot import plot

NAMES = ("compiler", "aligner", "database", "sort")
STATIC = (3, 6, 12, 25, 50, 75)
# The columns of table 1, as parameters.
COLUMNS = {
    "reference, onlyswap": {},
    "sluggish": {"variant": "sluggish"},
    "aggressive": {"variant": "aggressive"},
    "wkdm, lzowkdm": {"codec": "wkdm"},
    "cell1": {"cell": 1},
    "cell4": {"cell": 4},
}
PAPER_RATIOS = {"compiler": (39.4, 60.6), "aligner": (35.5, 41.6), "database": (64.5, 86.5)}
# Gains of table 1 in %, in the order of COLUMNS.
PAPER_GAINS = {
    "kernel -j1, 18 MB": (21.7, 18.1, 21.5, 2.1, 19.1, -0.6),
    "MUMmer, 330 MB": (16.1, 16.5, -120.4, 23.8, 37.1, -29.8),
    "MUMmer, 360 MB": (26.3, 26.6, 24.0, 26.9, 24.1, 25.7),
    "OSDB, 24 MB": (30.7, 31.6, 31.9, 5.5, 1.1, -7.7),
}
CELLS = {1: "one page", 2: "two", 4: "four"}
# Differences of gains that are worth a word, in points.
POINTS = 2

HEAD = """## castro: static sizes against one that adapts

Paper: Pentium III of 1 GHz, Linux 2.4.18, disk of 7200 turns. Sections 3 and 4. Its programs were
compilations of the kernel, MUMmer, OSDB on PostgreSQL, and GNU sort; ours are named above.
"""


def static(lab):
    """Figures 3 and 6."""
    rows, saved, resident = [], [], []
    for name in lab.has(*NAMES, "fft"):
        memory = lab.memories(name)[1]
        base, adaptive = (lab.sim(name, memory, design) for design in ("none", "castro"))
        fixed = [lab.sim(name, memory, "hp", codec="lzo", share=f"{share}%") for share in STATIC]
        rows.append([f"{name}, {memory} MiB", *(speedup(base, row) for row in [*fixed, adaptive])])
        best = max(gain(base, row) or 0 for row in fixed)
        saved.append(f"{name} {show(gain(base, adaptive))} against {show(best)}")
        found = [100 * row["resident_hits"] / row["references"] for row in (base, adaptive)]
        resident.append(f"{name} {found[0]:.1f} and {found[1]:.1f}")
    labels = [*percents(STATIC), "adaptive"]
    picture = plot("castro-static", "castro: static sizes against adaptive (figures 3 and 6)",
                   "none / design, modelled paging time", labels,
                   [(row[0], row[1:]) for row in rows], apart=1)
    return f"""### Figures 3 and 6: static sizes and the adaptive one

Speed-up over `none`. Static: `--design hp --set hp.codec=lzo --set hp.share=...`; adaptive:
`--design castro`.

{table(["workload", *labels], rows)}
{picture}
Paper, 3: static sizes from 512 KB to 8 MB gain or lose on the kernel's compilation, those from 2 to
50 MB on MUMmer, and a size that helps one program degrades another; the adaptive one is at or near
the best. {spread(rows)} In % of the time of `none`, the adaptive one saves, against the best static
size: {listing(saved)}.

The rule counts reads and not what they cost: three reads in a row from the expense list, which cost
some tens of microseconds, give away a page that costs a seek if it is missed. In the paper's times,
of which paging is a part, that is small; in ours it is nearly all. And the rule is told wrong:
`none` sees every reference, as the paper's kernel nearly did by accessed bits, but a program's own
pager sees only faults, so pages that are in use leave and are read back from the expense list.
Found resident by `none` and by the adaptive one, in % of the references: {listing(resident)}.
"""


def spread(rows):
    """Which static sizes are best and worst."""
    found = []
    for row in rows:
        sizes = [value for value in row[1:-1] if value]
        if sizes:
            best, worst = (STATIC[row.index(pick(sizes)) - 1] for pick in (max, min))
            found.append(f"{row[0]} best at {best} % ({show(max(sizes))}), "
                         f"worst at {worst} % ({show(min(sizes))})")
    return f"Ours: {listing(found)}."


def columns(lab):
    """Table 1."""
    rows = []
    for name in lab.has(*NAMES):
        for memory in dict.fromkeys(lab.memories(name)):
            base = lab.sim(name, memory, "none")
            found = [lab.sim(name, memory, "castro", **more) for more in COLUMNS.values()]
            gains = [gain(base, row) for row in found]
            rows.append([f"{name}, {memory} MiB", base["modelled_seconds"], *gains])
    paper = [[f"paper: {name}", None, *gains] for name, gains in PAPER_GAINS.items()]
    return f"""### Table 1: gain over no compression in %

Gain is 1 - time / time of `none`. `reference` is `--design castro`; the others differ from it in
one parameter. `onlyswap` keeps files out of the cache and `lzowkdm` takes WKdm for pages of
programs only; as a trace has such pages alone they are `reference` and `wkdm`.

{table(["workload, memory", "none, s", *COLUMNS], [*rows, *paper])}
Ours differ because computing is not in the time, because `none` reads ahead and writes 32 pages
together, and because no accessed bits tell which resident page leaves. {variants(rows)}

{cells(lab)}
"""


def variants(rows):
    """How sluggish and aggressive compare."""
    known = [row for row in rows if None not in row]
    behind = {at: [row[0] for row in known if row[at] < row[2] - POINTS] for at in (3, 4)}
    ahead = {at: [row[0] for row in known if row[at] > row[2] + POINTS] for at in (3, 4)}
    said = [f"`{name}` is behind `reference` by more than {POINTS} points for "
            f"{listing(behind[at])}, and ahead for {listing(ahead[at])}"
            for at, name in ((3, "sluggish"), (4, "aggressive"))]
    return (f"{'. '.join(said)}. The less evidence is wanted, the more pages are written that "
            "would have been read from the pool; in the paper that shows for MUMmer in 330 MB.")


def cells(lab):
    """The known failure: cells of one page on memory that compresses poorly."""
    rows = []
    for name in lab.has("database"):
        for memory in lab.memories(name):
            found = [lab.seconds(name, memory, "castro", codec="wkdm", cell=cell) for cell in CELLS]
            rows.append([f"{name}, {memory} MiB", lab.seconds(name, memory, "none"), *found])
    helped = [row[0] for row in rows if row[3] < row[2]]
    return f"""The known failure, cells of one page on memory that compresses poorly (OSDB in the
paper: 1.1 against 30.7). That is the database under WKdm, modelled s:

{table(["workload, memory", "none", *CELLS.values()], rows)}
Cells of two pages help for: {listing(helped)}. A cell of two holds three compressed pages where
they are between a half and two thirds of a page, and one of one a single such page; where they are
shorter, one page is enough, and longer ones, as fft's, lie one to a page in either. `cell4` was
poor in the paper because a kernel under pressure seldom has four neighbouring pages; the pool here
always has."""


def ratios(lab):
    """Table 2."""
    rows = []
    for name in lab.has(*NAMES):
        ours = [lab.left(name, codec) for codec in ("lzo", "wkdm")]
        rows.append([name, *PAPER_RATIOS.get(name, (None, None)), *ours])
    shorter = [row[0] for row in rows if row[3] < row[4]]
    return f"""### Table 2: compression ratio in %

{table(["workload", "LZO, paper", "WKdm, paper", "LZO, ours", "WKdm, ours"], rows)}
LZO leaves less than WKdm for: {", ".join(shorter) or "none"}. The paper's are of the pages that
were swapped, files' pages with them, ours of all of the program's memory; how full it is of
pointers, which are twice as long today, sets how far the two are apart. MUMmer 3 packs its suffix
tree into some 17 bytes a base, which leaves a codec little; the paper's was version 1.0.
"""


def switch(lab):
    """Table 3."""
    rows = []
    for name in lab.has(*NAMES):
        memory = lab.memories(name)[1]
        found = [lab.seconds(name, memory, "castro", switch=state) for state in ("on", "off")]
        rows.append([f"{name}, {memory} MiB", lab.seconds(name, memory, "none"), *found])
    moved = [row[0] for row in rows if abs(row[2] - row[3]) > 0.01 * row[3]]
    return f"""### Table 3: with and without the switch for clean pages, modelled s

{table(["workload", "none", "switch on", "switch off"], rows)}
Paper, table 3, sort: 54.4 s without compression, 55.3 with the switch, 80.4 without it. The switch
changes our time by more than 1 % for: {", ".join(moved) or "no program"}. Their sort read 100 MB
of files through the cache in 2 MB of memory of its own, clean pages that never come back; a trace
has the program's own memory alone, whose clean pages do.
"""


def text(lab):
    """The section."""
    return "\n".join([HEAD, static(lab), columns(lab), ratios(lab), switch(lab)])
