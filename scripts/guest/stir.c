/*
 * Visits pages at random, counts the visits in the pages, and looks at all of them in the end.
 *
 * usage: stir MIB VISITS   prints how many pages are not what they should be
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define PAGE_WORDS 512

int main(int count, char **arguments)
{
	if (count != 3) {
		fputs("usage: stir MIB VISITS\n", stderr);
		return 2;
	}
	size_t pages = strtoul(arguments[1], NULL, 10) << 8;
	unsigned long visits = strtoul(arguments[2], NULL, 10);
	uint64_t(*memory)[PAGE_WORDS] = malloc(pages * sizeof *memory);
	uint32_t *seen = calloc(pages, sizeof *seen);
	if (memory == NULL || seen == NULL) {
		fputs("stir: no memory\n", stderr);
		return 1;
	}
	for (size_t page = 0; page < pages; page++)
		for (size_t at = 0; at < PAGE_WORDS; at++)
			memory[page][at] = page;
	/* xorshift64*. */
	uint64_t state = 1999;
	while (visits-- > 0) {
		state ^= state >> 12;
		state ^= state << 25;
		state ^= state >> 27;
		size_t page = (state * 0x2545f4914f6cdd1d >> 33) % pages;
		memory[page][seen[page]++ % PAGE_WORDS]++;
	}
	size_t wrong = 0;
	for (size_t page = 0; page < pages; page++) {
		uint64_t sum = 0;
		for (size_t at = 0; at < PAGE_WORDS; at++)
			sum += memory[page][at] - page;
		wrong += sum != seen[page];
	}
	printf("%zu\n", wrong);
	return 0;
}
