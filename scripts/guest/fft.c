/* A Fourier transform of two dimensions, SIDE x SIDE complex numbers set at random, row by row with a
 * transposition between: cervera's first benchmark. Prints a digest of the bits of the result.
 *
 * No function of the mathematics library is used, whose last bits differ from one processor to
 * another: sines and cosines come from square roots, by halving the angle.
 *
 * usage: fft LOG2_OF_SIDE */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LOG_MAX = 14, BLOCK = 16 };

typedef struct {
	double re, im;
} complex_t;

/* Powers of the root of unity: power[k] turns by k / SIDE of a circle. */
static complex_t *power;
static int side;

static complex_t times(complex_t a, complex_t b)
{
	return (complex_t){a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}

static void make_powers(int log_side)
{
	/* A turn by 1 / 2^n of a circle, beginning with half of one. */
	complex_t turn[LOG_MAX + 1] = {{1, 0}, {-1, 0}, {0, 1}};
	for (int n = 3; n <= log_side; n++) {
		turn[n].re = sqrt((1 + turn[n - 1].re) / 2);
		turn[n].im = turn[n - 1].im / (2 * turn[n].re);
	}
	for (int k = 0; k < side; k++) {
		power[k] = (complex_t){1, 0};
		for (int bit = 0; bit < log_side; bit++)
			if (k >> bit & 1)
				power[k] = times(power[k], turn[log_side - bit]);
	}
}

static void transform(complex_t *row, int log_side)
{
	for (int i = 1, j = 0; i < side; i++) {
		int bit = side >> 1;
		for (; j & bit; bit >>= 1)
			j ^= bit;
		j ^= bit;
		if (i < j) {
			complex_t other = row[i];
			row[i] = row[j];
			row[j] = other;
		}
	}
	for (int log_length = 1; log_length <= log_side; log_length++) {
		int half = 1 << (log_length - 1), step = side >> log_length;
		for (int start = 0; start < side; start += 2 * half) {
			for (int k = 0; k < half; k++) {
				complex_t a = row[start + k];
				complex_t b = times(row[start + half + k], power[k * step]);
				row[start + k] = (complex_t){a.re + b.re, a.im + b.im};
				row[start + half + k] = (complex_t){a.re - b.re, a.im - b.im};
			}
		}
	}
}

static void transpose(complex_t *data)
{
	for (int row = 0; row < side; row += BLOCK)
		for (int column = row; column < side; column += BLOCK)
			for (int i = row; i < row + BLOCK; i++)
				for (int j = column > i ? column : i + 1; j < column + BLOCK; j++) {
					complex_t *a = &data[(size_t)i * side + j];
					complex_t *b = &data[(size_t)j * side + i];
					complex_t other = *a;
					*a = *b;
					*b = other;
				}
}

int main(int count, char **arguments)
{
	int log_side = count == 2 ? atoi(arguments[1]) : 0;
	if (log_side < 4 || log_side > LOG_MAX)
		return 2;
	side = 1 << log_side;
	size_t length = (size_t)side * side;
	complex_t *data = malloc(length * sizeof *data);
	power = malloc(side * sizeof *power);
	if (data == NULL || power == NULL)
		return 1;
	make_powers(log_side);
	uint64_t random = 1999;
	for (size_t i = 0; i < 2 * length; i++) {
		random ^= random << 13;
		random ^= random >> 7;
		random ^= random << 17;
		((double *)data)[i] = (double)(random >> 11) / (double)(1ULL << 53);
	}
	for (int pass = 0; pass < 2; pass++) {
		for (int row = 0; row < side; row++)
			transform(data + (size_t)row * side, log_side);
		transpose(data);
	}
	uint64_t digest = 0xcbf29ce484222325;
	for (size_t i = 0; i < 2 * length; i++) {
		uint64_t bits;
		memcpy(&bits, (double *)data + i, sizeof bits);
		digest = (digest ^ bits) * 0x100000001b3;
	}
	/* The sum of all that went in is the first that comes out. */
	printf("%016llx %.6f\n", (unsigned long long)digest, data[0].re / (double)length);
	return 0;
}
