"""Two-dimensional Fourier transforms of random complex values, there and back.

Arguments: side of the square, number of rounds, seed.
"""

import hashlib
import sys

import numpy

side, rounds, seed = (int(argument) for argument in sys.argv[1:])
random = numpy.random.default_rng(seed)
values = random.standard_normal((side, side)) + 1j * random.standard_normal((side, side))
start = values.copy()
for _ in range(rounds):
    values = numpy.fft.fft2(values)
    values = numpy.fft.ifft2(values)
assert numpy.allclose(values, start), "the inverse transform did not give the values back"
print(hashlib.sha256(values.tobytes()).hexdigest())
