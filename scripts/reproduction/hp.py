"""hp's figures 5 to 7, 9 and 10."""

from . import plot
from .document import listing, percents, show, table
from .laboratory import PAGING, speedup
from .workloads import SOR_MIB

CODECS = ("deflate", "lzo", "lzw", "wkdm", "wk4x4", "lz4", "word")
SAMPLED = ("objects", "sort", "compiler")
PROGRAMS = ("fft", "sort", "compiler", "database", "aligner", "objects", "dither", "simulator")
SHARES = (0, 6, 12, 25, 50, 75)
SOR_MEMORY = 64

HEAD = """## hp: compressed memory as a device of fixed size

Paper: two Pentium III of 733 MHz, Linux 2.2.16, SCSI disk of 10,000 turns, WK4x4 in buckets of 256
bytes. Sections 4 and 5.
"""


def codecs(lab):
    """Figures 5 to 7."""
    rows = []
    for name in lab.has(*SAMPLED):
        for codec, row in lab.codecs(name).items():
            if codec in CODECS:
                rows.append([f"{name}: {codec}", row["original_bytes"] / row["compressed_bytes"],
                             row["compress_ns_mean"] / 1000, row["decompress_ns_mean"] / 1000])
    tightest = [f"{name}: {max(rows_of(rows, name), key=lambda row: row[1])[0].split(': ')[1]}"
                for name in lab.has(*SAMPLED)]
    return f"""### Figures 5 to 7: ratio and times of the codecs

On the memory of real programs, `zpager codecs --pages 1500 -- PROGRAM`; means, in us a page. These
times are measured, and differ from run to run.

{table(["memory: codec", "ratio", "compress, us", "restore, us"], rows)}
{histograms(lab)}
Paper, 4: most pages of a vision program compress about 2 times with every codec, zlib best and an
order of magnitude slower than the others, WKdm and WK4x4 the best compromise. Ours, the tightest:
{listing(tightest)}. They differ because today's pages hold pointers of 64 bits, of which WKdm and
WK4x4 see two words of 32, and because deflate here is level 1 of a fast library. `word` is ours,
made for words of 64 bits; LZW is a plain implementation.
"""


def rows_of(rows, name):
    """The rows of one program."""
    return [row for row in rows if row[0].startswith(f"{name}: ")]


def histograms(lab):
    """The three histograms, drawn by zpager itself."""
    names = lab.has("objects")
    if not names:
        return ""
    plot.FOLDER.mkdir(exist_ok=True)
    picture = str(plot.FOLDER / "hp-codecs.svg")
    failed = lab.run(lab.codecs_command(names[0], "--codec", ",".join(CODECS), "--plot", picture))
    if failed:
        return f"No picture: {failed}.\n"
    return plot.shown("hp-codecs", "hp: the codecs on CPython's memory (figures 5 to 7)")


def programs(lab):
    """Figure 9."""
    rows = []
    for name in lab.has(*PROGRAMS):
        memory = lab.memories(name)[1]
        base = lab.sim(name, memory, "none")
        rows.append([f"{name}, {memory} MiB",
                     *(speedup(base, lab.sim(name, memory, "hp", share=f"{share}%"))
                       for share in SHARES)])
    labels = percents(SHARES)
    best = [f"{row[0].split(',')[0]} {labels[row.index(max(row[1:])) - 1]} ({show(max(row[1:]))})"
            for row in rows if None not in row]
    picture = plot.plot("hp-programs", "hp: programs by the compressed share (figure 9)",
                        "none / hp, modelled paging time", labels,
                        [(row[0], row[1:]) for row in rows])
    return f"""### Figure 9: speed-up by the share of memory that is compressed

{table(["workload, memory", *labels], rows)}
{picture}
Paper, 5: 1.05 (bzip2) to 1.75 (apsi) on SPEC 2000, the best share 10 to 30 %. Ours, the best share
of each: {", ".join(best)}. SPEC cannot be had; these are other programs at 60 % of their peak, the
aligner at 95 %.
The paging alone is in our times, so gains and losses are larger; `none` reads ahead and hp does
not, so a program that reads its memory in order may lose at every share.
"""


def relaxation(lab):
    """Figure 10."""
    rows = []
    for mib in SOR_MIB:
        for name in lab.has(f"sor {mib}"):
            rows.append([f"{mib} MiB, {mib * 100 // SOR_MEMORY} %",
                         lab.seconds(name, SOR_MEMORY, "none"),
                         *(lab.seconds(name, SOR_MEMORY, "hp", share=f"{share}%")
                           for share in SHARES)])
    labels = percents(SHARES)
    paging = [row for row in rows if row[1] > PAGING]
    best = [f"{row[0]}: {labels[row.index(min(row[2:]), 2) - 2]} "
            f"({show(row[1] / min(row[2:]))} times)" for row in paging]
    fitting = [f"{row[0]}: from {row[1]:.2f} s to {row[-1]:.2f}"
               for row in rows if row not in paging]
    picture = plot.plot("hp-sor", "hp: over-relaxation by the compressed share (figure 10)",
                        "none / hp, modelled paging time; grids that page without compression",
                        labels, [(row[0], [row[1] / value for value in row[2:]]) for row in paging])
    return f"""### Figure 10: successive over-relaxation of several sizes in {SOR_MEMORY} MiB

Modelled seconds; the size of the grid is also given in % of the memory.

{table(["grid", "none", *labels], rows)}
{picture}
Paper, 5: the best share lies around 25 %, speed-ups up to 3.5 (abstract: 250 %); at 75 % even a
program of 20 % of the memory slows down, because the kernel takes 20 % more. Ours, of the grids
that page without compression, the best: {listing(best)}. Of those that fit, at 75 %:
{listing(fitting)}. The direction is the same: what fits pays for memory that it may not use, what
does not fit gains. Ours gains more, because most of the grid is still zeros, which a small share
holds with all the rest, so the best share is lower; and there is no kernel in our budget, so that
a grid of 20 % still fits beside a share of 75 %.
"""


def text(lab):
    """The section."""
    return "\n".join([HEAD, codecs(lab), programs(lab), relaxation(lab)])
