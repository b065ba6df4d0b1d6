"""Dithering after Floyd and Steinberg of moving pictures that stay in memory, played over and over.

A stand-in for cervera's xanim: a smooth scene with noise moves from frame to frame; each frame
is held as it was and as it was dithered to 16 grey levels.

Arguments: number of frames, height, width, number of times they are played, seed.
"""

import hashlib
import sys

import numpy

count, height, width, plays, seed = (int(argument) for argument in sys.argv[1:])
random = numpy.random.default_rng(seed)
columns = numpy.arange(width)


def make_frame(number):
    """Three colours as bytes."""
    frame = random.integers(0, 9, (height, width, 3), numpy.uint8)
    for row in range(height):
        for colour, slope in enumerate((1, 2, 3)):
            phase = (columns * slope + row * (4 - slope) + number * 3) / 90
            frame[row, :, colour] += (numpy.sin(phase) * 100 + 120).astype(numpy.uint8)
    return frame


def dither(frame):
    """The grey frame in 16 levels. What is left over goes to the right as a running remainder,
    and a part of it to the row below: error diffusion by whole rows, not the exact weights."""
    grey = frame.mean(2)
    result = numpy.empty((height, width), numpy.uint8)
    for row in range(height):
        line = grey[row]
        levels = numpy.clip(numpy.round(numpy.cumsum(line) / 17), 0, None)
        levels = numpy.clip(numpy.diff(levels, prepend=0), 0, 15)
        result[row] = levels * 17
        error = line - result[row]
        if row + 1 < height:
            below = grey[row + 1]
            below += error * 5 / 32
            below[:-1] += error[1:] * 3 / 32
            below[1:] += error[:-1] * 1 / 32
    return result


frames = [make_frame(number) for number in range(count)]
dithered = [dither(frame) for frame in frames]
digest = hashlib.sha256()
for _ in range(plays):
    for frame in dithered:
        digest.update(frame)
print(digest.hexdigest())
