/* stdio with large buffers in managed memory, long lines, and streams over memory and pipes. */
#include "victim.h"

#define BUFFER_BYTES (8ul << 20)
#define LINES 60000

static void buffered(uint64_t seed, char *buffer) {
    FILE *file = tmpfile();
    CHECK(file && setvbuf(file, buffer, _IOFBF, BUFFER_BYTES) == 0);
    for (int i = 0; i < LINES; i++)
        CHECK(fprintf(file, "%d %016lx %s\n", i, mix(seed + i), i % 3 ? "word" : "another word")
              > 0);
    press();
    rewind(file);
    char line[128], wanted[128];
    for (int i = 0; i < LINES; i++) {
        snprintf(wanted, sizeof wanted, "%d %016lx %s\n", i, mix(seed + i),
                 i % 3 ? "word" : "another word");
        CHECK(fgets(line, sizeof line, file) && strcmp(line, wanted) == 0);
    }
    CHECK(!fgets(line, sizeof line, file) && feof(file));
    fclose(file);
}

static void blocks(uint64_t tag) {
    size_t pages = 24 * MIB_PAGES;
    char *a = malloc(pages * PAGE_BYTES), *b = malloc(pages * PAGE_BYTES);
    pages_fill(a, pages, tag);
    FILE *file = tmpfile();
    CHECK(fwrite(a, PAGE_BYTES, pages, file) == pages);
    rewind(file);
    CHECK(fread(b, 1, pages * PAGE_BYTES, file) == pages * PAGE_BYTES);
    pages_check(b, pages, tag);
    press();
    CHECK(fseek(file, 10 * PAGE_BYTES, SEEK_SET) == 0);
    CHECK(fread(b, PAGE_BYTES, pages, file) == pages - 10);
    pages_check(b, pages - 10, tag + 10);
    fclose(file);
    free(a);
    free(b);
}

static void long_line(uint64_t seed) {
    char *text = NULL, *line = NULL;
    size_t bytes = 0, capacity = 0;
    FILE *memory = open_memstream(&text, &bytes);
    for (int i = 0; i < 400000; i++)
        fprintf(memory, "%lu ", mix(seed + i));
    fputc('\n', memory);
    CHECK(fclose(memory) == 0);
    FILE *file = tmpfile();
    press();
    CHECK(fputs(text, file) >= 0);
    rewind(file);
    CHECK(getline(&line, &capacity, file) == (ssize_t)bytes);
    CHECK(memcmp(line, text, bytes) == 0);
    note_bytes(line, bytes);
    fclose(file);
    free(line);
    free(text);
}

static void pipes(char *buffer) {
    FILE *pipe = popen("i=0; while [ $i -lt 3000 ]; do echo line $i; i=$((i+1)); done", "r");
    CHECK(pipe && setvbuf(pipe, buffer, _IOFBF, BUFFER_BYTES) == 0);
    char line[64], wanted[64];
    for (int i = 0; i < 3000; i++) {
        snprintf(wanted, sizeof wanted, "line %d\n", i);
        CHECK(fgets(line, sizeof line, pipe) && strcmp(line, wanted) == 0);
    }
    CHECK(pclose(pipe) == 0);
}

int main(int argc, char **argv) {
    uint64_t seed = mix(victim_start(argc, argv));
    ballast_make(40);
    char *buffer = malloc(2 * BUFFER_BYTES);
    memset(buffer, 1, 2 * BUFFER_BYTES);
    press();
    buffered(seed, buffer);
    blocks(seed);
    long_line(seed);
    press();
    pipes(buffer + BUFFER_BYTES);
    free(buffer);
    return victim_end();
}
