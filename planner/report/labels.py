"""Labels of points in a figure, placed so that none covers another or a point."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from matplotlib.font_manager import FontProperties

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Box = tuple[float, float, float, float]  # x0, y0, x1, y1 in pixels

# Where a label may go, in points from its point, the nearest first.
_DISTANCES = (8, 18, 30, 44, 62)
_DIRECTIONS = ((1, 0), (1, 1), (-1, 0), (-1, 1), (1, -1), (-1, -1), (0, 1), (0, -1))
_POINT_RADIUS_PX = 6.0
_NEAR_PX = 70.0
_PADDING_PX = 5.0


def place_labels(
    axes: Axes,
    points: Sequence[tuple[float, float]],
    texts: Sequence[str],
    line: Sequence[tuple[float, float]] = (),
    size: float = 8.5,
) -> None:
    """Write each text beside its point, in the order of importance, off the `line`.

    The axes' limits and position must be final. A text near an equal one is not repeated; one that finds no room is
    left out rather than drawn over another.
    """
    pixels = [tuple(pixel) for pixel in axes.transData.transform(points)] if len(points) else []
    bounds = axes.get_window_extent()
    frame = (bounds.x0, bounds.y0, bounds.x1, bounds.y1)
    taken = [_around(pixel, _POINT_RADIUS_PX) for pixel in pixels]
    taken += [
        _around(pixel, 1.0)
        for pixel in _along([tuple(pixel) for pixel in axes.transData.transform(line)] if len(line) else [])
    ]
    written: list[tuple[str, tuple[float, float]]] = []
    for point, pixel, text in zip(points, pixels, texts, strict=True):
        if any(text == other and _distance(pixel, where) < _NEAR_PX for other, where in written):
            continue
        if _place(axes, point, pixel, text, size, frame, taken, pixels):
            written.append((text, pixel))


def _place(
    axes: Axes,
    point: tuple[float, float],
    pixel: tuple[float, float],
    text: str,
    size: float,
    frame: Box,
    taken: list[Box],
    pixels: Sequence[tuple[float, float]],
) -> bool:
    scale = axes.figure.dpi / 72.0
    width, height = _extent(axes, text, size)
    for distance in _DISTANCES:
        for dx, dy in _DIRECTIONS:
            centre = (
                pixel[0] + dx * (distance * scale + width / 2 * (dx != 0)),
                pixel[1] + dy * (distance * scale * (1.0 if dx == 0 else 0.7) + height / 2 * (dy != 0)),
            )
            box = (centre[0] - width / 2, centre[1] - height / 2, centre[0] + width / 2, centre[1] + height / 2)
            if not _inside(box, frame) or any(_overlap(box, other) for other in taken):
                continue
            offset = ((centre[0] - pixel[0]) / scale, (centre[1] - pixel[1]) / scale)
            nearest = min(pixels, key=lambda other: _distance(centre, other))
            clear = distance == _DISTANCES[0] and nearest == pixel
            leader = {"arrowstyle": "-", "color": "0.45", "lw": 0.6, "shrinkA": 0, "shrinkB": 3}
            axes.annotate(
                text,
                point,
                xytext=offset,
                textcoords="offset points",
                ha="center",
                va="center",
                fontsize=size,
                arrowprops=None if clear else leader,
                zorder=6,
            )
            taken.append(box)
            return True
    return False


def _along(corners: Sequence[Sequence[float]]) -> list[tuple[float, float]]:
    """Points of a line through `corners`, a few pixels apart."""
    points = []
    for start, end in itertools.pairwise(corners):
        steps = int(math.hypot(end[0] - start[0], end[1] - start[1]) / 4) + 1
        for step in range(steps):
            share = step / steps
            points.append((start[0] + share * (end[0] - start[0]), start[1] + share * (end[1] - start[1])))
    return points


def _extent(axes: Axes, text: str, size: float) -> tuple[float, float]:
    """Width and height of a text in pixels, with a little room around it."""
    renderer = axes.figure.canvas.get_renderer()  # type: ignore[attr-defined]
    width, height, descent = renderer.get_text_width_height_descent(text, FontProperties(size=size), False)
    return width + _PADDING_PX, height + descent + _PADDING_PX


def _around(pixel: tuple[float, float], radius: float) -> Box:
    return (pixel[0] - radius, pixel[1] - radius, pixel[0] + radius, pixel[1] + radius)


def _distance(a: tuple[float, float], b: tuple[float, float]) -> float:
    return ((a[0] - b[0]) ** 2 + (a[1] - b[1]) ** 2) ** 0.5


def _inside(box: Box, frame: Box) -> bool:
    return box[0] >= frame[0] and box[1] >= frame[1] and box[2] <= frame[2] and box[3] <= frame[3]


def _overlap(a: Box, b: Box) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]
