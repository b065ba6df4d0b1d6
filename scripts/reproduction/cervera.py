"""cervera's table 1 and figures 4 to 7."""

from .document import listing, percents, show, table
from .laboratory import speedup
from .plot import plot

# Ratio of table 1 in %, and the speed-up as section 4.3 tells it of figure 4.
PAPER = {
    "fft": (64.9, "0.96"),
    "fft x 10": (61.2, "1.2 to 2.1"),
    "sort": (46.5, "1.2 to 2.1"),
    "sort x 6": (51.3, "1.2 to 2.1"),
    "simulator": (6.7, "low, over 1.2"),
    "simulator x 5": (1.1, "6.5"),
    "dither": (27.8, "1.2 to 2.1"),
    "dither x 4": (37.9, "1.2 to 2.1"),
}
CACHES = ("256K", "512K", "1M", "2M", "4M")
THRESHOLDS = (1, 5, 10, 20, 50, 70)
FFT_CACHES = ("1M", "4M", "16M")
FFT_SHARES = (0.5, 0.7, 0.9, 0.96)
# The largest cache must leave room for the program.
LEAST_MIB = 12
AREA_MIB, AREA_PAGES_MIB = 128, 256

HEAD = """## cervera: compressed swap with a fixed small cache

Paper: Pentium II of 350 MHz, Linux 2.0.34, 64 MB, LZO, SCSI disk; caches of 256 KB to 4 MB.
Section 4.

Two bases. `plain` reads page by page, as we take the paper's kernel to have done: `--design zswap
--set zswap.max_pool_percent=0 --set zswap.same_filled=off`. `none` reads up to 64 pages ahead, as
kernels do since; `cervera` reads alone (section 2.4).
"""


class Section:
    """The section on one laboratory's programs, each in half of its peak."""

    def __init__(self, lab):
        self.lab = lab
        self.names = lab.has(*PAPER)
        self.memory = {name: lab.part(name, 0.5, LEAST_MIB) for name in self.names}

    def row(self, name, cache, threshold):
        """What the design does with a cache and a threshold."""
        parameters = {"cache": cache, "threshold": f"{threshold}%"}
        return self.lab.sim(name, self.memory[name], "cervera", **parameters)

    def faster(self, name, cache, threshold):
        """How many times faster than the plain base."""
        return speedup(self.lab.plain(name, self.memory[name]), self.row(name, cache, threshold))

    def first(self):
        """Table 1 and figure 4."""
        rows = []
        for name in self.names:
            over_none = speedup(self.lab.sim(name, self.memory[name], "none"),
                                self.row(name, "1M", 50))
            rows.append([name, f"{self.memory[name]} of {self.lab.peak(name):.0f}", PAPER[name][0],
                         self.lab.left(name, "lzo"), PAPER[name][1], self.faster(name, "1M", 50),
                         over_none])
        head = ["workload", "memory of peak, MiB", "ratio, %: paper, table 1", "ours",
                "speed-up: paper, 4.3", "over plain", "over none"]
        slow = [f"{row[0]} ({show(row[5])} and {show(row[6])})" for row in rows
                if min(row[5] or 9, row[6] or 9) < 1.1]
        return f"""### Table 1 and figure 4: speed-up with a cache of 1 MB and a threshold of 50 %

{table(head, rows)}
Commands: `zpager codecs --pages 1500 -- PROGRAM`, row `lzo`, for the ratio; `zpager sim --design
cervera --set cervera.cache=1M --set cervera.threshold=50% --disk hdd --memory M`.

They differ because a seek costs two thousand times what LZO takes for a page today, and cost some
thirty times that then, so one read or write saved pays for more, and because only paging is in our
times. Near or below 1.0 over `plain` and `none`, one of them below 1.1: {listing(slow)}. A program
that reads in order loses over `none`, which reads ahead; one of whose pages seldom two fit a buffer
saves few writes, which is the first of the paper's reasons for its fft.

{self.failure()}"""

    def failure(self):
        """fft by memory and cache: the paper's program that runs slower."""
        if "fft" not in self.names:
            return ""
        rows = []
        for share in FFT_SHARES:
            size = self.lab.part("fft", share)
            bases = self.lab.plain("fft", size), self.lab.sim("fft", size, "none")
            found = [self.lab.sim("fft", size, "cervera", cache=cache, threshold="50%")
                     for cache in FFT_CACHES]
            rows.append([f"{size} MiB, {100 * share:.0f} %",
                         *(speedup(base, row) for row in found for base in bases)])
        head = [f"{cache}, {base}" for cache in FFT_CACHES for base in ("plain", "none")]
        low = [f"{head[at]} at {row[0]} ({show(value)})" for row in rows
               for at, value in enumerate(row[1:]) if value and value < 1.1]
        return f"""The known failure, fft, by its memory and the cache:

{table(["memory of its peak", *head], rows)}
Near or below 1.0: {listing(low)}. Over `plain` only what the cache takes from the program can make
it slow, the paper's second reason; over `none` also that `none` reads ahead.
"""

    def figure(self, title, name, labels, rows):
        """The picture of a table."""
        series = [(row[0], row[1:]) for row in rows]
        heights = "plain / cervera, modelled paging time"
        return plot(name, f"cervera: speed-up by {title}", heights, labels, series)

    def sizes(self):
        """Figure 5."""
        rows = [[name, *(self.faster(name, cache, 50) for cache in CACHES)] for name in self.names]
        known = [row for row in rows if None not in row]
        best = [f"{row[0]} {CACHES[row.index(max(row[1:])) - 1]}" for row in known]
        return f"""### Figure 5: speed-up over plain by the cache size, threshold 50 %

{table(["workload", *CACHES], rows)}
{self.figure("the cache size (figure 5)", "cervera-cache", CACHES, rows)}
Paper, 4.3: no size is best for all; very large caches take too much from the program; about 1 MB is
good for all. Ours, the best of each: {", ".join(best)}. What fits a cache never reaches the disk,
so memory that compresses well gains from every byte of it; memory that does not pays for a large
one.
"""

    def thresholds(self):
        """Figure 6."""
        rows = [[name, *(self.faster(name, "256K", threshold) for threshold in THRESHOLDS)]
                for name in self.names]
        rising = [row[0] for row in rows if None not in row and row[-1] >= max(row[1:])]
        labels = percents(THRESHOLDS)
        return f"""### Figure 6: speed-up over plain by the threshold, cache of 256 KB

{table(["workload", *labels], rows)}
{self.figure("the cleaning threshold (figure 6)", "cervera-threshold", labels, rows)}
Paper, 4.3: too small a threshold makes many small writes; the best is 10 to 20 %; large ones hurt
several processes because one waits for another's cleaning. (It prints 256 Mbytes for the cache,
which was more than the machine had.) Ours is slow for small thresholds for the same reason, and
best at the largest for: {", ".join(rising) or "none"}: in the model nobody waits for a write but
the next access to the disk.
"""

    def capacity(self):
        """Figure 7."""
        rows = []
        for name in self.names:
            row = self.row(name, "1M", 50)
            # What came back out of the cache was never in the swap area.
            written = (row["swapped_out_pages"] - row["compressed_hits"]) * 4096
            area = row["store_written_bytes"]
            rows.append([name, min(AREA_PAGES_MIB, AREA_MIB * written / area) if area else None])
        many = [row[0] for row in rows if row[1] and row[1] >= 1.5 * AREA_MIB]
        return f"""### Figure 7: pages that a swap area of 128 MB holds, in MB, at most 256

{table(["workload", "ours"], rows)}
Paper, 4.4: more than 1.5 times (192) for most; 256 is the size of its table. Ours holds as much
for: {", ".join(many) or "none"}. It is pages written by bytes written at a cache of 1 MB, cleaning
and the unused rest of each buffer included: where two pages seldom fit one buffer, and buffers are
written again as they empty, the area holds less than without compression.
"""

    def text(self):
        """The section."""
        return "\n".join([HEAD, self.first(), self.sizes(), self.thresholds(), self.capacity()])


def text(lab):
    """The section."""
    return Section(lab).text()
