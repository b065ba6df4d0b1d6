"""Dithering after Floyd and Steinberg of moving pictures that stay in memory, played over and over.

A stand-in for cervera's xanim: each frame is held as it was and as it was dithered to 16 grey
levels, with the exact weights. The frames are those of a film; without one, a smooth scene with
noise moves.

Arguments: number of frames, height, width, number of times they are played, seed, and a file of
frames as bytes of red, green and blue, or `-` for the scene.
"""

import hashlib
import sys

import numpy

count, height, width, plays, seed = (int(argument) for argument in sys.argv[1:6])
film = sys.argv[6]
random = numpy.random.default_rng(seed)
columns = numpy.arange(width)
LEVEL = 17
# Where what is left over goes: to the right, below left, below, and below right.
WEIGHTS = (7 / 16, 3 / 16, 5 / 16, 1 / 16)


def made_frame(number):
    """Three colours as bytes."""
    frame = random.integers(0, 9, (height, width, 3), numpy.uint8)
    for row in range(height):
        for colour, slope in enumerate((1, 2, 3)):
            phase = (columns * slope + row * (4 - slope) + number * 3) / 90
            frame[row, :, colour] += (numpy.sin(phase) * 100 + 120).astype(numpy.uint8)
    return frame


def film_frame(number):
    """The same from the film."""
    size = height * width * 3
    frame = numpy.fromfile(film, numpy.uint8, size, offset=number * size)
    return frame.reshape(height, width, 3)


def dither(frame):
    """The grey frame in 16 levels. A pixel waits for the one on its left and three above; those
    of which column + 2 rows is the same wait for nobody among them, and are done at once."""
    # A column more on either side and a row more below take what falls off.
    stride = width + 2
    work = numpy.zeros((height + 1) * stride, numpy.float32)
    work.reshape(height + 1, stride)[:height, 1:-1] = frame.mean(2)
    levels = numpy.empty((height, stride), numpy.uint8)
    for wave in range(width + 2 * height - 2):
        first = max(0, (wave - width + 2) // 2)
        last = min(height - 1, wave // 2)
        start = first * stride + wave - 2 * first + 1
        pixels = slice(start, start + (last - first) * (stride - 2) + 1, stride - 2)
        value = work[pixels]
        level = numpy.clip(numpy.rint(value / LEVEL), 0, 15)
        levels.reshape(-1)[pixels] = level * LEVEL
        error = value - level * LEVEL
        for weight, step in zip(WEIGHTS, (1, stride - 1, stride, stride + 1)):
            work[pixels.start + step : pixels.stop + step : stride - 2] += error * weight
    return levels[:, 1:-1].copy()


frames = [made_frame(number) if film == "-" else film_frame(number) for number in range(count)]
dithered = [dither(frame) for frame in frames]
digest = hashlib.sha256()
for _ in range(plays):
    for frame in dithered:
        digest.update(frame)
print(digest.hexdigest())
