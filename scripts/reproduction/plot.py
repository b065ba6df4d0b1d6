"""Lines in a picture, as SVG."""

import math

from . import workloads

FOLDER = workloads.ROOT / "docs" / "reproduction"
COLOURS = ("#3366cc", "#dc3912", "#e69f00", "#109618", "#990099", "#0099c6", "#777777", "#8b5a00")
TICKS = tuple(digit * 10.0**power for power in range(-3, 5) for digit in (1, 2, 5))
WIDTH, HEIGHT = 760, 400
LEFT, TOP, RIGHT, BOTTOM = 60, 52, 170, 50
# Pixels between the names of lines that end close to each other.
NAME_STEP = 15


def text(x, y, what, more=""):
    """Words at a place."""
    return f'<text x="{x:.0f}" y="{y:.0f}" {more}>{what}</text>'


def line(x1, y1, x2, y2, colour):
    """A thin line."""
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}"/>'


class Scale:
    """Where values lie: places side by side, heights by their logarithm."""

    def __init__(self, places, values):
        self.places = places
        self.low = math.floor(min(map(math.log10, [*values, 0.9])) * 4) / 4
        self.high = math.ceil(max(map(math.log10, [*values, 1.1])) * 4) / 4

    def x(self, place):
        """The middle of a place."""
        return LEFT + (WIDTH - LEFT - RIGHT) * (place + 0.5) / self.places

    def y(self, value):
        """The height of a value."""
        part = (self.high - math.log10(value)) / (self.high - self.low)
        return TOP + (HEIGHT - TOP - BOTTOM) * part

    def ticks(self):
        """Round values in reach, not closer than can be read."""
        reach = self.high - self.low
        kept = 1 if reach > 3 else 3
        return [tick for number, tick in enumerate(TICKS)
                if self.low <= math.log10(tick) <= self.high and number % 3 < kept]


def grid(scale):
    """The levels; the one at 1 stands out."""
    for tick in scale.ticks():
        y, colour = scale.y(tick), "#000000" if tick == 1 else "#dddddd"
        yield line(LEFT, y, WIDTH - RIGHT, y, colour)
        yield text(LEFT - 6, y + 4, f"{tick:g}", 'text-anchor="end"')


def curve(scale, points, colour, apart):
    """A line with a mark at each point; the last points are marks alone."""
    known = [(scale.x(place), scale.y(value)) for place, value in enumerate(points) if value]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in known[:len(known) - apart])
    yield f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>'
    for x, y in known:
        yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>'


def name_heights(wanted):
    """Heights for names, as near as can be to those wanted, that do not lie on each other."""
    order = sorted(range(len(wanted)), key=wanted.__getitem__)
    heights, free = {}, TOP
    for rank, number in enumerate(order):
        last = HEIGHT - BOTTOM - NAME_STEP * (len(order) - rank - 1)
        heights[number] = min(max(wanted[number], free), last)
        free = heights[number] + NAME_STEP
    return heights


def names(scale, series):
    """The name of each line at its end."""
    ends = [next((scale.y(value) for value in reversed(points) if value), TOP)
            for _, points in series]
    heights = name_heights(ends)
    for number, (name, _) in enumerate(series):
        style = f'fill="{COLOURS[number % len(COLOURS)]}"'
        yield text(WIDTH - RIGHT + 8, heights[number] + 4, name, style)


def plot(name, title, heights, labels, series, apart=0):
    """Writes a picture of lines over labels; gives the Markdown that shows it. So many of the last
    labels are no part of the row that the others are."""
    values = [value for _, points in series for value in points if value]
    scale = Scale(len(labels), values)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
             f'width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif" font-size="12">',
             '<rect width="100%" height="100%" fill="white"/>',
             text(LEFT, 20, title, 'font-size="15"'), text(LEFT, 37, heights, 'fill="#555555"')]
    parts += grid(scale)
    for place, label in enumerate(labels):
        parts.append(text(scale.x(place), HEIGHT - BOTTOM + 18, label, 'text-anchor="middle"'))
    for number, (_, points) in enumerate(series):
        parts += curve(scale, points, COLOURS[number % len(COLOURS)], apart)
    parts += names(scale, series)
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"{name}.svg").write_text("\n".join([*parts, "</svg>"]) + "\n")
    return shown(name, title)


def shown(name, title):
    """The Markdown that shows a picture."""
    return f"![{title}](reproduction/{name}.svg)\n"
