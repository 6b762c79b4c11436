/* test_apart.c -- pieces in processes speak as if they were one. */
#include "compiler/apart.h"
#include "ir/base.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { PIECES = 4 };

/* The first is the last to be over; piece *arg fails. */
static void speak(void *arg, int i)
{
    fprintf(stderr, "piece %d\n", i);
    usleep((useconds_t)(PIECES - i) * 10000);
    if (*(int *)arg == i)
        err_code(3, "x.lua:1", "piece %d is too large", i);
}

/* What stderr holds at the end of a process that runs all; its status. */
static int run(int fails, char *said, size_t room)
{
    static const int order[PIECES] = { 2, 0, 3, 1 };
    FILE *f = tmpfile();
    int status;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        dup2(fileno(f), 2);
        apart_run(order, PIECES, speak, &fails);
        fprintf(stderr, "all\n");
        fflush(NULL);
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    rewind(f);
    said[fread(said, 1, room - 1, f)] = 0;
    fclose(f);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void pieces_speak_in_their_order(void **state)
{
    (void)state;
    char said[400];
    assert_int_equal(run(-1, said, sizeof said), 0);
    assert_string_equal(said, "piece 0\npiece 1\npiece 2\npiece 3\nall\n");
}

static void the_first_that_fails_is_the_end(void **state)
{
    (void)state;
    char said[400];
    assert_int_equal(run(1, said, sizeof said), 3);
    assert_string_equal(said, "piece 0\npiece 1\n"
                        "x.lua:1: error: piece 1 is too large\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_speak_in_their_order),
        cmocka_unit_test(the_first_that_fails_is_the_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
