"""Tables and paragraphs of Markdown."""

import textwrap

COLUMNS = 100


def show(value):
    """A number with as many digits as it is worth."""
    if value is None:
        return "-"
    if isinstance(value, str):
        return value
    if isinstance(value, int) or abs(value) >= 100:
        return f"{value:.0f}"
    return f"{value:.2f}" if abs(value) < 10 else f"{value:.1f}"


def table(head, rows, words=1):
    """Rows under a head; the first columns are words, the others numbers."""
    rule = ["---"] * words + ["---:"] * (len(head) - words)
    lines = [head, rule, *rows]
    return "\n".join("| " + " | ".join(map(show, line)) + " |" for line in lines) + "\n"


def listing(items):
    """Some items, or that there are none."""
    return "; ".join(items) or "none"


def percents(numbers):
    """Labels of columns."""
    return [f"{number} %" for number in numbers]


def wrap(document):
    """The document with its paragraphs filled; tables, headings and pictures stay as they are."""
    blocks = (block if block[:1] in "|#!" else textwrap.fill(
        block, COLUMNS, break_long_words=False, break_on_hyphens=False)
        for block in document.split("\n\n"))
    return "\n\n".join(block for block in blocks if block.strip()).rstrip() + "\n"
