"""Pure: pictures made of characters; coloured where there are colours, readable without."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rich.text import Text

SIDE = 32  # pixels of a game's small picture, both ways
BARS = " ▁▂▃▄▅▆▇█"
SHADES = " ░▒▓█"
BRIGHTEST_INK = 16  # of the pixels of a handwritten digit

Colour = tuple[int, int, int]


def game(picture: bytes, *, coloured: bool) -> Text:
    """A small picture of a game, 3 bytes a pixel; two pixels, one above the other, are one character."""
    pixels = [tuple(picture[at : at + 3]) for at in range(0, len(picture), 3)]
    rows = [pixels[at : at + SIDE] for at in range(0, len(pixels), SIDE)]
    background = Counter(pixels).most_common(1)[0][0]
    text = Text(no_wrap=True)
    for upper, lower in zip(rows[::2], rows[1::2], strict=True):
        for top, bottom in zip(upper, lower, strict=True):
            if coloured:
                text.append("▀", style=f"{_rgb(top)} on {_rgb(bottom)}")
            else:
                text.append(" ▄▀█"[2 * (top != background) + (bottom != background)])
        text.append("\n")
    text.right_crop()  # the last line break
    return text


def _rgb(colour: tuple[int, ...]) -> str:
    return "rgb({},{},{})".format(*colour)


def digit(pixels: Sequence[int]) -> list[str]:
    """A handwritten digit of 8 x 8 pixels as four lines of 8 characters."""
    rows = [pixels[at : at + 8] for at in range(0, 64, 8)]
    return [
        "".join(_shade((top + bottom) / 2) for top, bottom in zip(upper, lower, strict=True))
        for upper, lower in zip(rows[::2], rows[1::2], strict=True)
    ]


def _shade(ink: float) -> str:
    return SHADES[round(ink / BRIGHTEST_INK * (len(SHADES) - 1))]


def sparkline(values: Sequence[float]) -> str:
    """One character a value; the highest fills its line, and only nothing is blank."""
    most = max(values, default=0)
    return "".join(BARS[_height(value, most)] for value in values)


def _height(value: float, most: float) -> int:
    return 0 if value <= 0 else max(1, round(value / most * (len(BARS) - 1)))


def bar(share: float, width: int) -> str:
    """A bar of ``share`` of the width, to an eighth of a character; never quite nothing."""
    eighths = max(1, round(share * width * 8))
    return "█" * (eighths // 8) + ("", *"▏▎▍▌▋▊▉")[eighths % 8]


def buckets(times: Sequence[float], start: float, end: float, count: int) -> list[int]:
    """How many of the times fall into each of ``count`` equal parts of a span."""
    found = [0] * count
    for time in times:
        if start <= time <= end:
            found[min(count - 1, int((time - start) / max(end - start, 1e-9) * count))] += 1
    return found
