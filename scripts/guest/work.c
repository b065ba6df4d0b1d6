/*
 * Programs of the comparison that compute on memory of their own: stand-ins for three of cervera's
 * (Cervera and others, 1999, section 4.2), without its inputs, in plain arithmetic, so that the same
 * file prints the same on every processor.
 *
 * usage: work fft SIDE SEED   two-dimensional transform of a random SIDE x SIDE matrix
 *        work simulate MIB EVENTS SEED   simulator of a network of disks with so many MiB of requests
 *        work dither FRAMES PLAYS SEED   Floyd-Steinberg dithering of FRAMES pictures of 320 x 240,
 *                             each kept as it was and as it became, and played PLAYS times (for xanim)
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t state;

/* xorshift64*. */
static uint64_t draw(void)
{
	state ^= state >> 12;
	state ^= state << 25;
	state ^= state >> 27;
	return state * 0x2545f4914f6cdd1d;
}

/* FNV-1a by words. */
static uint64_t digest(uint64_t seen, const void *data, size_t bytes)
{
	const unsigned char *at = data;
	for (size_t done = 0; done + 8 <= bytes; done += 8) {
		uint64_t word;
		memcpy(&word, at + done, 8);
		seen = (seen ^ word) * 0x100000001b3;
	}
	return seen;
}

static void *take(size_t bytes)
{
	void *memory = malloc(bytes);
	if (memory == NULL) {
		fputs("work: no memory\n", stderr);
		exit(1);
	}
	return memory;
}

struct complex {
	double re, im;
};

static struct complex times(struct complex a, struct complex b)
{
	return (struct complex){a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}

/* By Newton's method, from above: no library. */
static double root_of(double square)
{
	double guess = 1;
	for (int round = 0; round < 60; round++)
		guess = (guess + square / guess) / 2;
	return guess;
}

/* The roots of unity of one line: powers of the first, which comes from halved angles. */
static void find_roots(struct complex *roots, size_t side)
{
	struct complex turn = {-1, 0};
	for (size_t length = 2; length < side; length *= 2)
		turn = length == 2 ? (struct complex){0, -1}
				   : (struct complex){root_of((1 + turn.re) / 2), -root_of((1 - turn.re) / 2)};
	roots[0] = (struct complex){1, 0};
	for (size_t at = 1; at < side / 2; at++)
		roots[at] = times(roots[at - 1], turn);
}

/* One line of `side` values, `step` apart. */
static void transform(struct complex *line, size_t side, size_t step, const struct complex *roots)
{
	for (size_t from = 1, to = 0; from < side; from++) {
		size_t bit = side >> 1;
		for (; to & bit; bit >>= 1)
			to ^= bit;
		to ^= bit;
		if (from < to) {
			struct complex held = line[from * step];
			line[from * step] = line[to * step];
			line[to * step] = held;
		}
	}
	for (size_t length = 2; length <= side; length *= 2) {
		for (size_t start = 0; start < side; start += length) {
			for (size_t at = 0; at < length / 2; at++) {
				struct complex *low = line + (start + at) * step, *high = low + length / 2 * step;
				struct complex turned = times(*high, roots[at * (side / length)]);
				*high = (struct complex){low->re - turned.re, low->im - turned.im};
				*low = (struct complex){low->re + turned.re, low->im + turned.im};
			}
		}
	}
}

static uint64_t fft(size_t side)
{
	struct complex *values = take(side * side * sizeof *values);
	struct complex *roots = take(side * sizeof *roots);
	/* As the C library gave them: 31 bits. */
	for (size_t at = 0; at < side * side; at++)
		values[at] = (struct complex){(double)(draw() >> 33) / 0x80000000, 0};
	find_roots(roots, side);
	for (size_t row = 0; row < side; row++)
		transform(values + row * side, side, 1, roots);
	for (size_t column = 0; column < side; column++)
		transform(values + column, side, side, roots);
	return digest(1, values, side * side * sizeof *values);
}

/* A request as simulators keep it, alike in most of its fields. */
struct request {
	int64_t kind, time, disk, block, blocks, from, error, next;
};

enum { DISKS = 64, BATCH = 64 };

struct queue {
	struct request *slots;
	size_t head, tail;
};

static void submit(struct queue *queues, size_t slots, size_t disk, int64_t time, int64_t block)
{
	struct queue *queue = &queues[disk];
	queue->slots[queue->tail++ % slots] =
		(struct request){1, time / 1000, (int64_t)disk, block, 8, 0, 0, -1};
}

/*
 * Every disk has a long queue and serves a batch at a time; what follows from each request goes to a
 * disk near by. Finished requests stay where they are until their slot is used again, as in the paper's
 * memory library.
 */
static uint64_t simulate(size_t mib, unsigned events)
{
	size_t slots = (mib << 20) / DISKS / sizeof(struct request);
	struct queue queues[DISKS];
	for (size_t disk = 0; disk < DISKS; disk++) {
		queues[disk] = (struct queue){take(slots * sizeof(struct request)), 0, 0};
		for (size_t at = 0; at + BATCH < slots; at++)
			submit(queues, slots, disk, (int64_t)at, (int64_t)(at / 64));
	}
	uint64_t seen = 1;
	int64_t time = (int64_t)slots;
	for (unsigned event = 0; event < events; event++) {
		size_t disk = draw() % DISKS;
		time += (int64_t)(draw() % 10000);
		for (unsigned served = 0; served < BATCH; served++) {
			struct queue *queue = &queues[disk];
			struct request *done = &queue->slots[queue->head++ % slots];
			done->kind = 2;
			int64_t block = done->block;
			size_t other = (disk + (size_t)block % 3) % DISKS;
			int is_full = queues[other].tail - queues[other].head == slots;
			submit(queues, slots, is_full ? disk : other, time, block);
			seen = digest(seen, done, sizeof *done);
		}
		/* None runs dry. */
		if (queues[disk].tail - queues[disk].head < BATCH)
			for (size_t at = 0; at < slots / 2; at++)
				submit(queues, slots, disk, time, (int64_t)at);
	}
	return seen;
}

enum { WIDTH = 320, HEIGHT = 240, PIXELS = WIDTH * HEIGHT, LEVELS = 17 };

/* A scene that moves, with some noise. */
static void picture(unsigned char *pixels, unsigned number)
{
	for (unsigned at = 0; at < PIXELS; at++) {
		unsigned row = at / WIDTH, column = at % WIDTH;
		uint64_t noise = draw();
		for (unsigned colour = 0; colour < 3; colour++) {
			unsigned wave = (column * (colour + 1) + row * (3 - colour) + number * 3) % 512;
			unsigned height = wave < 256 ? wave : 511 - wave;
			pixels[at * 3 + colour] = (unsigned char)(height * 7 / 8 + (noise >> (20 * colour)) % 9);
		}
	}
}

static void dither_picture(const unsigned char *pixels, unsigned char *grey)
{
	static int16_t below[2][WIDTH + 2];
	memset(below, 0, sizeof below);
	for (unsigned row = 0; row < HEIGHT; row++) {
		int16_t *here = below[row % 2], *next = below[(row + 1) % 2];
		memset(next, 0, sizeof below[0]);
		for (unsigned column = 0; column < WIDTH; column++) {
			const unsigned char *pixel = pixels + (row * WIDTH + column) * 3;
			int wanted = (pixel[0] + pixel[1] + pixel[2]) / 3 + here[column + 1] / 16;
			int level = (wanted + LEVELS / 2) / LEVELS;
			level = level < 0 ? 0 : level > 15 ? 15 : level;
			int left = wanted - level * LEVELS;
			grey[row * WIDTH + column] = (unsigned char)(level * LEVELS);
			here[column + 2] += 7 * left;
			next[column] += 3 * left;
			next[column + 1] += 5 * left;
			next[column + 2] += left;
		}
	}
}

static uint64_t dither(unsigned frames, unsigned plays)
{
	unsigned char *pixels = take((size_t)frames * PIXELS * 3);
	unsigned char *grey = take((size_t)frames * PIXELS);
	uint64_t seen = 1;
	for (unsigned frame = 0; frame < frames; frame++) {
		picture(pixels + (size_t)frame * PIXELS * 3, frame);
		dither_picture(pixels + (size_t)frame * PIXELS * 3, grey + (size_t)frame * PIXELS);
	}
	for (unsigned play = 0; play < plays; play++) {
		for (unsigned frame = 0; frame < frames; frame++) {
			seen = digest(seen, grey + (size_t)frame * PIXELS, PIXELS);
			seen = digest(seen, pixels + (size_t)frame * PIXELS * 3, PIXELS * 3);
		}
	}
	return seen;
}

int main(int count, char **arguments)
{
	const char *what = count > 1 ? arguments[1] : "";
	unsigned long numbers[3] = {0};
	for (int at = 2; at < count && at < 5; at++)
		numbers[at - 2] = strtoul(arguments[at], NULL, 10);
	state = numbers[count > 4 ? 2 : 1] * 2 + 1;
	uint64_t seen;
	if (count == 4 && strcmp(what, "fft") == 0) {
		seen = fft(numbers[0]);
	} else if (count == 5 && strcmp(what, "simulate") == 0) {
		seen = simulate(numbers[0], (unsigned)numbers[1]);
	} else if (count == 5 && strcmp(what, "dither") == 0) {
		seen = dither((unsigned)numbers[0], (unsigned)numbers[1]);
	} else {
		fputs("usage: work fft SIDE SEED | simulate MIB EVENTS SEED | dither FRAMES PLAYS SEED\n", stderr);
		return 2;
	}
	printf("%016llx\n", (unsigned long long)seen);
	return 0;
}
